package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.reflect.ClassTag$;

/** Its parent's partitions, each preferred at the location given for it ("" is anywhere). */
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
        String place = this.locations[split.index() % this.locations.length];
        if (place.length() == 0) return (Seq) Nil$.MODULE$;
        return (Seq) Nil$.MODULE$.prepended(place);
    }

    public Iterator compute(Partition split, TaskContext context) {
        return this.prev.iterator(split, context);
    }
}
