package penstock;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/**
 * Its parent's partitions, each preferred at the location given for it; "" is anywhere. A "!" before
 * it means there or nowhere: Spark runs the tasks of an executor that is lost on others.
 */
public class PinnedRDD extends RDD {
    private final RDD prev;
    private final String[] locations;

    public PinnedRDD(RDD prev, String[] locations) {
        super(prev, ClassTag$.MODULE$.apply(Object.class));
        this.prev = prev;
        this.locations = locations;
    }

    public Partition[] getPartitions() {
        return this.prev.partitions();
    }

    public Seq getPreferredLocations(Partition split) {
        String place = this.location(split);
        if (place.length() == 0) return (Seq) Nil$.MODULE$;
        return (Seq) Nil$.MODULE$.prepended(place.startsWith("!") ? place.substring(1) : place);
    }

    /** The executor that this runs on. By name: the compiler would want classes that Spark brings none of. */
    private static String here() {
        try {
            Class env = Class.forName("org.apache.spark.SparkEnv");
            MethodHandles.Lookup look = MethodHandles.publicLookup();
            Object one = look.findStatic(env, "get", MethodType.methodType(env)).invokeWithArguments(new Object[0]);
            MethodHandle id = look.findVirtual(env, "executorId", MethodType.methodType(String.class));
            return (String) id.invokeWithArguments(new Object[] {one});
        } catch (Throwable error) {
            throw new IllegalStateException("cannot tell the executor", error);
        }
    }

    private String location(Partition split) {
        return this.locations[split.index() % this.locations.length];
    }

    public Iterator compute(Partition split, TaskContext context) {
        String place = this.location(split);
        if (place.startsWith("!") && !place.endsWith("_" + here()))
            throw new IllegalStateException("a task for " + place.substring(1) + " was given to executor " + here());
        return this.prev.iterator(split, context);
    }
}
