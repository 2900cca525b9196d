package penstock;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** Rows of (target int, frame binary) as Python writes pairs: eight bytes of the target, then the frame. */
public class FrameRDD extends RDD {
    private final RDD prev;

    public FrameRDD(RDD prev) {
        super(prev, ClassTag$.MODULE$.apply(Object.class));
        this.prev = prev;
    }

    public Partition[] getPartitions() {
        return this.prev.partitions();
    }

    public Iterator compute(Partition split, TaskContext context) {
        return new Pairs(this.prev.iterator(split, context));
    }

    public static class Pairs extends AbstractIterator {
        private final Iterator rows;
        private byte[] frame;

        public Pairs(Iterator rows) {
            this.rows = rows;
        }

        public boolean hasNext() {
            return this.frame != null || this.rows.hasNext();
        }

        public Object next() {
            if (this.frame != null) {
                byte[] out = this.frame;
                this.frame = null;
                return out;
            }
            InternalRow row = (InternalRow) this.rows.next();
            long target = row.getInt(0);
            this.frame = row.getBinary(1);
            byte[] key = new byte[8];
            for (int i = 7; i >= 0; i--) {
                key[i] = (byte) target;
                target >>= 8;
            }
            return key;
        }
    }
}
