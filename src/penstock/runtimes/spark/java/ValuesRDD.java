package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** The second halves of pairs. Spark's own needs a closure, whose class it reads from a jar each time. */
public class ValuesRDD extends RDD {
    private final RDD prev;

    public ValuesRDD(RDD prev) {
        super(prev, ClassTag$.MODULE$.apply(byte[].class));
        this.prev = prev;
    }

    public Partition[] getPartitions() {
        return this.prev.partitions();
    }

    public Iterator compute(Partition split, TaskContext context) {
        return new Seconds(this.prev.iterator(split, context));
    }

    public static class Seconds extends AbstractIterator {
        private final Iterator pairs;

        public Seconds(Iterator pairs) {
            this.pairs = pairs;
        }

        public boolean hasNext() {
            return this.pairs.hasNext();
        }

        public Object next() {
            return ((Tuple2) this.pairs.next())._2();
        }
    }
}
