package penstock;

import java.io.Serializable;
import java.util.ArrayList;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.collection.immutable.Range$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction2;

/** All frames of a partition. */
public class Gather extends AbstractFunction2 implements Serializable {
    public Object apply(Object context, Object frames) {
        ArrayList all = new ArrayList();
        Iterator each = (Iterator) frames;
        while (each.hasNext()) all.add(each.next());
        byte[][] out = new byte[all.size()][];
        for (int i = 0; i < out.length; i++) out[i] = (byte[]) all.get(i);
        return out;
    }

    /**
     * Runs a job over all partitions, and returns their frames in order. Spark would wrap a function without a context
     * in a closure of its own, and read the class of that, one of its largest, for every job.
     */
    public static ArrayList run(SparkContext sc, RDD frames) {
        Seq all = (Seq) Range$.MODULE$.apply(0, frames.getNumPartitions());
        Object[] parts = (Object[]) sc.runJob(frames, new Gather(), all, ClassTag$.MODULE$.apply(byte[][].class));
        ArrayList out = new ArrayList();
        for (int p = 0; p < parts.length; p++) {
            byte[][] part = (byte[][]) parts[p];
            for (int i = 0; i < part.length; i++) out.add(part[i]);
        }
        return out;
    }
}
