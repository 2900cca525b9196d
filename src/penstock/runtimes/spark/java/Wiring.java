package penstock;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.python.PairwiseRDD;
import org.apache.spark.api.python.PythonPartitioner;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.api.python.PythonRDD$;
import org.apache.spark.api.python.SimplePythonFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.ShuffledRDD;
import org.apache.spark.serializer.JavaSerializer;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag$;

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

    /** What a Python function makes of an RDD of byte strings whose partitions are pinned. */
    public JavaRDD first(JavaRDD rdd, String locations, byte[] command, SimplePythonFunction like) {
        return this.python(this.pin(rdd.rdd(), locations), command, like);
    }

    /** The same of what was sent: every frame in the partition that the key before it names; one a location. */
    public JavaRDD next(JavaRDD pairs, String locations, byte[] command, SimplePythonFunction like) {
        int count = locations.split("\n", -1).length;
        RDD keyed = new PairwiseRDD(pairs.rdd());
        ShuffledRDD sent = new ShuffledRDD(keyed, new PythonPartitioner(count, 0L),
            ClassTag$.MODULE$.apply(Long.class), ClassTag$.MODULE$.apply(byte[].class), ClassTag$.MODULE$.apply(byte[].class));
        // Spark would choose Kryo for byte strings, and make one for every task, which costs more than the frames.
        sent.setSerializer(new JavaSerializer(pairs.context().conf()));
        return this.python(this.pin(new ValuesRDD(sent), locations), command, like);
    }

    /** A Python function over byte strings, with the environment and the broadcasts of another one. */
    private JavaRDD python(RDD rdd, byte[] command, SimplePythonFunction like) {
        SimplePythonFunction function = new SimplePythonFunction(command, like.envVars(), like.pythonIncludes(),
            like.pythonExec(), like.pythonVer(), like.broadcastVars(), like.accumulator());
        return new PythonRDD(rdd, function, true, false).asJavaRDD();
    }

    /**
     * Runs a job in a group. Returns its frames, each behind its length, or, where they are many bytes, what Python
     * needs to read them from a port; to serve them costs two threads and a connection.
     */
    public Object collect(SparkContext sc, JavaRDD frames, String group, String text, int most) {
        ArrayList all;
        sc.setJobGroup(group, text, false);
        try {
            all = Gather.run(sc, frames.rdd());
        } finally {
            sc.clearJobGroup();
        }
        long size = 0;
        for (int i = 0; i < all.size(); i++) size += 4 + ((byte[]) all.get(i)).length;
        if (size > most) return PythonRDD$.MODULE$.serveIterator(new Each(all.iterator()), "serve frames");
        ByteBuffer out = ByteBuffer.allocate((int) size);
        for (int i = 0; i < all.size(); i++) {
            byte[] frame = (byte[]) all.get(i);
            out.putInt(frame.length).put(frame);
        }
        return out.array();
    }

    /** An iterator of Java as one of Scala. */
    public static class Each extends AbstractIterator {
        private final Iterator each;

        public Each(Iterator each) {
            this.each = each;
        }

        public boolean hasNext() {
            return this.each.hasNext();
        }

        public Object next() {
            return this.each.next();
        }
    }
}
