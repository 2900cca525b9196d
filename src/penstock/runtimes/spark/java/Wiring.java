package penstock;

import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.python.PairwiseRDD;
import org.apache.spark.api.python.PythonPartitioner;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.rdd.RDD;

/** Puts the stages of a batch together, with one call from Python each instead of dozens. */
public class Wiring {
    /** An RDD whose partitions prefer the locations given for them, one a line. */
    public RDD pin(RDD rdd, String locations) {
        return new PinnedRDD(rdd, locations.split("\n", -1));
    }

    /** Rows of (target int, frame binary) as the pairs that Python writes. */
    public JavaRDD frames(RDD rows) {
        return new FrameRDD(rows).toJavaRDD();
    }

    /** What Python gets of an RDD whose partitions are pinned. */
    public JavaRDD pinned(JavaRDD rdd, String locations) {
        return this.pin(rdd.rdd(), locations).toJavaRDD();
    }

    /** Every frame in the partition that the key before it names; one partition a location. */
    public JavaRDD shuffled(JavaRDD pairs, String locations) {
        int count = locations.split("\n", -1).length;
        JavaPairRDD keyed = new PairwiseRDD(pairs.rdd()).asJavaPairRDD();
        return this.pinned(PythonRDD.valueOfPair(keyed.partitionBy(new PythonPartitioner(count, 0L))), locations);
    }
}
