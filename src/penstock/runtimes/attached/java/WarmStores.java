package penstock;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.mutable.HashMap;
import scala.reflect.ClassTag$;

/**
 * Loads stores on executors that are to have them soon, aside from those that Spark knows of: what
 * Spark's own call loads it takes for active, and unloads on the executor that still uses it. When
 * Spark was told that a store is here, the loaded one is handed over to it, and the next batch only
 * replays what changed since.
 */
public class WarmStores extends RDD {
    /** Stores that are loaded here and that Spark does not know of, by their ids. */
    private static final ConcurrentHashMap LOADED = new ConcurrentHashMap();

    /** One store on one executor. */
    public static class Store implements Partition {
        final int at;
        final StateStoreProviderId id;
        final String location;
        /** Index in the kinds of stores. */
        final int kind;

        public Store(int at, StateStoreProviderId id, String location, int kind) {
            this.at = at;
            this.id = id;
            this.location = location;
            this.kind = kind;
        }

        public int index() {
            return this.at;
        }

        public int hashCode() {
            return this.at;
        }

        public boolean equals(Object other) {
            return this == other;
        }

        /** What Scala's compiler makes of a trait that calls its parent. */
        public boolean org$apache$spark$Partition$$super$equals(Object other) {
            return this == other;
        }
    }

    private final Partition[] stores;
    /** What a store of each kind is made with, as Spark's own RDD has it. */
    private final Object[][] kinds;
    private final String action;
    private final long version;

    public WarmStores(SparkContext sc, ArrayList stores, Object[][] kinds, String action, long version) {
        super(sc, (Seq) Nil$.MODULE$, ClassTag$.MODULE$.apply(Object.class));
        this.stores = (Partition[]) stores.toArray(new Partition[stores.size()]);
        this.kinds = kinds;
        this.action = action;
        this.version = version;
    }

    public Partition[] getPartitions() {
        return this.stores;
    }

    public Seq getPreferredLocations(Partition split) {
        return (Seq) Nil$.MODULE$.prepended(((Store) split).location);
    }

    public scala.collection.Iterator compute(Partition split, TaskContext context) {
        Store store = (Store) split;
        try {
            if ("load".equals(this.action)) this.load(store);
            else if ("hand over".equals(this.action)) handOver(store);
            else drop(store);
        } catch (Throwable error) {
            throw new IllegalStateException("cannot " + this.action + " " + store.id, error);
        }
        return scala.collection.Iterator$.MODULE$.empty();
    }

    private void load(Store store) {
        Object[] made = this.kinds[store.kind];
        StateStoreProvider provider = (StateStoreProvider) LOADED.get(store.id);
        if (provider == null) {
            provider = StateStoreProvider$.MODULE$.createAndInit(
                store.id, (StructType) made[0], (StructType) made[1], (KeyStateEncoderSpec) made[2],
                ((Boolean) made[3]).booleanValue(), (StateStoreConf) made[5],
                ((SerializableConfiguration) ((Broadcast) made[6]).value()).value(),
                ((Boolean) made[4]).booleanValue(), (Option) made[7]);
            LOADED.put(store.id, provider);
        }
        provider.getReadStore(this.version, Option.empty()).release();
    }

    private static void handOver(Store store) throws Exception {
        StateStoreProvider provider = (StateStoreProvider) LOADED.remove(store.id);
        if (provider == null) return;
        Class known = Class.forName("org.apache.spark.sql.execution.streaming.state.StateStore$");
        Field field = known.getDeclaredField("loadedProviders");
        field.setAccessible(true);
        HashMap loaded = (HashMap) field.get(null);
        boolean taken = false;
        synchronized (loaded) {
            if (!loaded.contains(store.id)) {
                loaded.put(store.id, provider);
                taken = true;
            }
        }
        if (!taken) provider.close();
    }

    private static void drop(Store store) {
        StateStoreProvider provider = (StateStoreProvider) LOADED.remove(store.id);
        if (provider != null) provider.close();
    }
}
