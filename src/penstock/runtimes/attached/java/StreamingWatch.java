package penstock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.executor.ShuffleWriteMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.streaming.RealTimeTrigger;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager$;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.StateStoreRDD;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.storage.RDDInfo;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * The streaming queries of an application as Python reads them: one text for each thing that
 * happened, in order. It stands in the queue of Spark's own streaming listeners, so that a batch is
 * told of after all of its tasks.
 */
public class StreamingWatch extends SparkListener {
    /** Texts that may wait; more are dropped, and the query goes on. */
    private static final int WAITING = 1000;

    /** What a task says of the state that it used, under the names that Spark shows. */
    private static final String[] STATE_METRICS = {
        "number of total state rows", "memory used by state", "time to update", "time to commit changes",
        "RocksDB: load - time taken to load the store", "RocksDB: size of all SST files"
    };

    /** One stage of a batch. */
    public static class Stage {
        final StringBuilder text = new StringBuilder();
        final String query;
        final String batch;
        final boolean stateful;
        volatile boolean running = true;

        Stage(String query, String batch, boolean stateful) {
            this.query = query;
            this.batch = batch;
            this.stateful = stateful;
        }
    }

    private final SparkContext sc;
    private final LinkedBlockingQueue texts = new LinkedBlockingQueue(WAITING);
    private final ConcurrentHashMap stages = new ConcurrentHashMap();
    private final ConcurrentHashMap executions = new ConcurrentHashMap();
    /** Queries whose batches last so long that their stages are told of when they begin. */
    private final Set early = ConcurrentHashMap.newKeySet();
    private volatile long dropped = 0;

    public StreamingWatch(SparkContext sc) {
        this.sc = sc;
    }

    /** Listen from now on. */
    public void begin() {
        this.sc.listenerBus().addToQueue(this, "streams");
    }

    /** Listen no more. */
    public void end() {
        this.sc.listenerBus().removeListener(this);
        this.texts.offer("ended");
    }

    /** The next text; null when there was none for so long. */
    public String next(long waitMs) throws InterruptedException {
        return (String) this.texts.poll(waitMs, TimeUnit.MILLISECONDS);
    }

    /** Have a query's plan told with each of its batches. */
    public void follow(String query, StreamExecution execution) {
        this.executions.put(query, execution);
        if (execution.trigger() instanceof RealTimeTrigger) this.early.add(query);
        else this.early.remove(query);
    }

    /** Tell no more of a query. */
    public void leave(String query) {
        this.executions.remove(query);
        this.early.remove(query);
    }

    private void tell(String text) {
        if (!this.texts.offer(text)) this.dropped++;
    }

    public void onStageSubmitted(SparkListenerStageSubmitted event) {
        Properties properties = event.properties();
        String query = properties == null ? null : properties.getProperty("sql.streaming.queryId");
        String batch = query == null ? null : properties.getProperty("streaming.sql.batchId");
        if (batch == null || !this.executions.containsKey(query)) return;
        StageInfo info = event.stageInfo();
        boolean stateful = false;
        Seq rdds = info.rddInfos();
        for (int i = 0; i < rdds.size(); i++) {
            if (((RDDInfo) rdds.apply(i)).name().indexOf("StateStore") >= 0) stateful = true;
        }
        Stage stage = new Stage(query, batch, stateful);
        stage.text.append("stage\t").append(info.stageId()).append('\t').append(info.attemptNumber())
            .append('\t').append(info.parentIds().mkString(","))
            .append('\t').append(info.shuffleDepId().isDefined() ? info.shuffleDepId().get().toString() : "")
            .append('\t').append(info.numTasks()).append('\t').append(stateful).append('\n');
        this.stages.put(key(info.stageId(), info.attemptNumber()), stage);
        if (this.early.contains(query) && info.attemptNumber() == 0)
            this.tell("submitted\n" + query + "\t" + batch + "\t" + info.numTasks());
    }

    public void onStageCompleted(SparkListenerStageCompleted event) {
        StageInfo info = event.stageInfo();
        Stage stage = (Stage) this.stages.get(key(info.stageId(), info.attemptNumber()));
        if (stage != null) stage.running = false;
    }

    private static String key(int stage, int attempt) {
        return stage + "." + attempt;
    }

    public void onTaskEnd(SparkListenerTaskEnd event) {
        Stage stage = (Stage) this.stages.get(key(event.stageId(), event.stageAttemptId()));
        if (stage == null) return;
        TaskInfo info = event.taskInfo();
        StringBuilder out = stage.text;
        out.append("task\t").append(event.stageId()).append('\t').append(event.stageAttemptId())
            .append('\t').append(info.partitionId()).append('\t').append(info.executorId())
            .append('\t').append(info.host()).append('\t').append(info.successful())
            .append('\t').append(info.taskLocality()).append('\t').append(info.launchTime())
            .append('\t').append(info.finishTime());
        TaskMetrics m = event.taskMetrics();
        if (m == null) {
            out.append('\n');
            return;
        }
        ShuffleReadMetrics r = m.shuffleReadMetrics();
        ShuffleWriteMetrics w = m.shuffleWriteMetrics();
        out.append('\t').append(m.executorRunTime()).append('\t').append(m.executorCpuTime())
            .append('\t').append(m.jvmGCTime()).append('\t').append(m.memoryBytesSpilled() + m.diskBytesSpilled())
            .append('\t').append(m.peakExecutionMemory()).append('\t').append(r.recordsRead())
            .append('\t').append(r.localBytesRead()).append('\t').append(r.remoteBytesRead())
            .append('\t').append(w.recordsWritten()).append('\t').append(w.bytesWritten());
        long[] sums = new long[STATE_METRICS.length];
        scala.collection.Iterator all = info.accumulables().iterator();
        while (all.hasNext()) {
            AccumulableInfo a = (AccumulableInfo) all.next();
            if (a.name().isEmpty() || a.update().isEmpty()) continue;
            Object name = a.name().get();
            for (int k = 0; k < STATE_METRICS.length; k++) {
                if (STATE_METRICS[k].equals(name)) sums[k] += Long.parseLong(a.update().get().toString());
            }
        }
        for (int k = 0; k < sums.length; k++) out.append('\t').append(sums[k]);
        out.append('\n');
    }

    public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
        this.tell("removed\n" + event.executorId() + "\t" + event.reason().replace('\n', ' '));
    }

    public void onOtherEvent(SparkListenerEvent event) {
        if (event instanceof StreamingQueryListener.QueryProgressEvent) {
            this.progress(((StreamingQueryListener.QueryProgressEvent) event).progress());
        } else if (event instanceof StreamingQueryListener.QueryStartedEvent) {
            StreamingQueryListener.QueryStartedEvent started = (StreamingQueryListener.QueryStartedEvent) event;
            this.tell("started\n" + started.id() + "\t" + started.runId());
        } else if (event instanceof StreamingQueryListener.QueryTerminatedEvent) {
            StreamingQueryListener.QueryTerminatedEvent ended = (StreamingQueryListener.QueryTerminatedEvent) event;
            String why = ended.exception().isEmpty() ? "" : String.valueOf(ended.exception().get());
            this.tell("terminated\n" + ended.id() + "\t" + ended.runId() + "\t" + firstLine(why));
        }
    }

    private static String firstLine(String text) {
        String[] lines = text.trim().split("\\R", 2);
        return lines[0];
    }

    private void progress(StreamingQueryProgress progress) {
        String query = progress.id().toString();
        StreamExecution execution = (StreamExecution) this.executions.get(query);
        if (execution == null) return;
        String batch = String.valueOf(progress.batchId());
        StringBuilder out = new StringBuilder("progress\n");
        out.append(query).append('\t').append(batch).append('\n').append(progress.json()).append('\n');
        try {
            IncrementalExecution last = execution.lastExecution();
            if (last != null && last.currentBatchId() == progress.batchId()) plan(last, out);
        } catch (Throwable error) {
            // The query must not notice: without a plan the batch is measured all the same.
            this.tell("failed\n" + query + "\t" + String.valueOf(error).replace('\n', ' '));
        }
        Iterator each = this.stages.entrySet().iterator();
        while (each.hasNext()) {
            Stage stage = (Stage) ((Map.Entry) each.next()).getValue();
            if (!stage.query.equals(query)) continue;
            if (stage.batch.equals(batch)) out.append(stage.text);
            if (Long.parseLong(stage.batch) <= progress.batchId()) each.remove();
        }
        out.append(this.executors());
        this.tell(out.toString());
    }

    /** The stages of a plan: what each reads and writes, and the state that it keeps. */
    private static void plan(IncrementalExecution execution, StringBuilder out) {
        ArrayList open = new ArrayList();
        open.add(new Object[] {execution.executedPlan(), ""});
        HashSet known = new HashSet();
        for (int at = 0; at < open.size(); at++) {
            Object[] one = (Object[]) open.get(at);
            StringBuilder reads = new StringBuilder();
            StringBuilder states = new StringBuilder();
            segment((SparkPlan) one[0], reads, states, open, known);
            out.append("segment\t").append(one[1]).append('\t').append(reads).append('\t').append(states).append('\n');
        }
    }

    private static void segment(SparkPlan node, StringBuilder reads, StringBuilder states, ArrayList open, HashSet known) {
        if (node instanceof ReusedExchangeExec) node = (SparkPlan) ((ReusedExchangeExec) node).child();
        if (node instanceof ShuffleExchangeExec) {
            ShuffleExchangeExec exchange = (ShuffleExchangeExec) node;
            String shuffle = String.valueOf(exchange.shuffleDependency().shuffleId());
            reads.append(shuffle).append(',');
            if (known.add(shuffle)) open.add(new Object[] {exchange.child(), shuffle});
            return;
        }
        if (node instanceof StateStoreWriter) {
            StateStoreWriter writer = (StateStoreWriter) node;
            if (writer.stateInfo().isDefined()) {
                StatefulOperatorStateInfo info = (StatefulOperatorStateInfo) writer.stateInfo().get();
                states.append(writer.shortName()).append('|').append(info.operatorId()).append('|')
                    .append(info.numPartitions()).append('|').append(info.checkpointLocation()).append('|')
                    .append(info.queryRunId()).append('|').append(writer.stateStoreNames().mkString(",")).append(';');
            }
        }
        Seq children = node.children();
        for (int i = 0; i < children.size(); i++) {
            segment((SparkPlan) children.apply(i), reads, states, open, known);
        }
    }

    /** Whether a stage that reads or writes a query's state runs just now. */
    public boolean busy(String query) {
        Iterator each = this.stages.values().iterator();
        while (each.hasNext()) {
            Stage stage = (Stage) each.next();
            if (stage.running && stage.stateful && stage.query.equals(query)) return true;
        }
        return false;
    }

    /**
     * Tell Spark's coordinator where stores are: the next batch prefers to run there. One line a
     * store: checkpoint, run, operator, partition, name, host, executor. Returns how many were told.
     */
    public int report(SparkSession session, String lines) {
        StateStoreCoordinatorRef coordinator = session.sessionState().streamingQueryManager().stateStoreCoordinator();
        String[] all = lines.split("\n");
        for (int i = 0; i < all.length; i++) {
            String[] p = all[i].split("\t", -1);
            StateStoreId store = new StateStoreId(p[0], Long.parseLong(p[2]), Integer.parseInt(p[3]), p[4]);
            coordinator.reportActiveInstance(
                new StateStoreProviderId(store, UUID.fromString(p[1])), p[5], p[6], (Seq) Nil$.MODULE$);
        }
        return all.length;
    }

    /** Fields of Spark's RDD of stores that a store is made with, those of its parent last. */
    private static final String[] MADE_WITH = {
        "keySchema", "valueSchema", "keyStateEncoderSpec", "useColumnFamilies", "useMultipleValuesPerKey",
        "storeConf", "hadoopConfBroadcast", "stateSchemaBroadcast"
    };

    /**
     * Load stores where they are to be soon, hand them over to Spark, or drop them; lines as for
     * `report`. Waits until that is done, and returns for how many stores: those of operators whose
     * stores can be made from outside.
     */
    public int warm(String query, String action, String lines) throws Exception {
        StreamExecution execution = (StreamExecution) this.executions.get(query);
        IncrementalExecution last = execution == null ? null : execution.lastExecution();
        if (last == null) return 0;
        HashMap kinds = new HashMap();
        find(last.executedPlan(), kinds);
        ArrayList stores = new ArrayList();
        ArrayList made = new ArrayList(kinds.values());
        long version = -1;
        String[] all = lines.split("\n");
        for (int i = 0; i < all.length; i++) {
            String[] p = all[i].split("\t", -1);
            Object[] kind = (Object[]) kinds.get(p[2] + " " + p[4]);
            if (kind == null) continue;
            version = ((Long) kind[MADE_WITH.length]).longValue();
            StateStoreId store = new StateStoreId(p[0], Long.parseLong(p[2]), Integer.parseInt(p[3]), p[4]);
            stores.add(new WarmStores.Store(
                stores.size(), new StateStoreProviderId(store, UUID.fromString(p[1])),
                "executor_" + p[5] + "_" + p[6], made.indexOf(kind)));
        }
        if (stores.isEmpty()) return 0;
        Object[][] array = (Object[][]) made.toArray(new Object[made.size()][]);
        new WarmStores(this.sc, stores, array, action, version).toJavaRDD().collect();
        return stores.size();
    }

    /** What stores of each operator are made with, and the version that its batch began with. */
    private static void find(SparkPlan node, HashMap kinds) throws Exception {
        if (node instanceof StateStoreWriter && ((StateStoreWriter) node).stateInfo().isDefined()) {
            StatefulOperatorStateInfo info = (StatefulOperatorStateInfo) ((StateStoreWriter) node).stateInfo().get();
            if (info.stateStoreCkptIds().isEmpty()) kinds(node, info, kinds);
        }
        Seq children = node.children();
        for (int i = 0; i < children.size(); i++) find((SparkPlan) children.apply(i), kinds);
    }

    private static void kinds(SparkPlan node, StatefulOperatorStateInfo info, HashMap kinds) throws Exception {
        if (node instanceof StreamingSymmetricHashJoinExec) {
            StreamingSymmetricHashJoinExec join = (StreamingSymmetricHashJoinExec) node;
            // Later formats keep all of it in one store with column families that only Spark makes.
            if (join.stateFormatVersion() > 2) return;
            side("Left", join.left(), join.leftKeys(), join, info, kinds);
            side("Right", join.right(), join.rightKeys(), join, info, kinds);
            return;
        }
        RDD rdd = (RDD) node.execute();
        if (!(rdd instanceof StateStoreRDD)) return;
        Object[] made = new Object[MADE_WITH.length + 1];
        for (int i = 0; i < MADE_WITH.length; i++) made[i] = field(rdd, MADE_WITH[i]);
        made[MADE_WITH.length] = Long.valueOf(info.storeVersion());
        kinds.put(info.operatorId() + " default", made);
    }

    /** What the two stores of one side of a join are made with, as the join itself makes them. */
    private static void side(
        String name, SparkPlan input, Seq keys,
        StreamingSymmetricHashJoinExec join, StatefulOperatorStateInfo info, HashMap kinds) throws Exception {
        StreamingSymmetricHashJoinHelper.JoinSide side = (StreamingSymmetricHashJoinHelper.JoinSide) Class.forName(
            StreamingSymmetricHashJoinHelper.class.getName() + "$" + name + "Side$").getField("MODULE$").get(null);
        scala.collection.Iterator each = SymmetricHashJoinStateManager$.MODULE$.getSchemaForStateStores(
            side, input.output(), keys, join.stateFormatVersion()).iterator();
        while (each.hasNext()) {
            Tuple2 store = (Tuple2) each.next();
            StructType key = (StructType) ((Tuple2) store._2())._1();
            kinds.put(info.operatorId() + " " + store._1(), new Object[] {
                key, ((Tuple2) store._2())._2(), new NoPrefixKeyStateEncoderSpec(key), Boolean.FALSE, Boolean.FALSE,
                field(join, "storeConf"), field(join, "hadoopConfBcast"), Option.empty(),
                Long.valueOf(info.storeVersion())});
        }
    }

    /** Have later stages no longer mention a jar; those that run have their own list of jars. */
    public void forget(String jar) {
        scala.collection.Iterator sets = this.sc.addedJars().valuesIterator();
        while (sets.hasNext()) {
            scala.collection.mutable.Map jars = (scala.collection.mutable.Map) sets.next();
            scala.collection.Iterator each = jars.keysIterator().toList().iterator();
            while (each.hasNext()) {
                Object address = each.next();
                if (String.valueOf(address).endsWith("/" + jar)) jars.remove(address);
            }
        }
    }

    private static Object field(Object owner, String name) throws Exception {
        Class at = owner.getClass();
        while (at != null) {
            java.lang.reflect.Field[] all = at.getDeclaredFields();
            for (int i = 0; i < all.length; i++) {
                // Scala puts the name of the class before what inner classes of it use.
                if (!all[i].getName().equals(name) && !all[i].getName().endsWith("$$" + name)) continue;
                all[i].setAccessible(true);
                return all[i].get(owner);
            }
            at = at.getSuperclass();
        }
        throw new NoSuchFieldException(name);
    }

    /** Executors that are alive: id, host, cores, memory, memory of the heap in use, and time of its collection. */
    public String executors() {
        Seq all = this.sc.statusStore().executorList(true);
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < all.size(); i++) {
            ExecutorSummary e = (ExecutorSummary) all.apply(i);
            String at = e.hostPort();
            int colon = at.lastIndexOf(':');
            long heap = -1;
            if (e.peakMemoryMetrics().isDefined())
                heap = ((ExecutorMetrics) e.peakMemoryMetrics().get()).getMetricValue("JVMHeapMemory");
            out.append("executor\t").append(e.id()).append('\t').append(colon < 0 ? at : at.substring(0, colon))
                .append('\t').append(e.totalCores()).append('\t').append(e.maxMemory())
                .append('\t').append(heap).append('\t').append(e.totalGCTime()).append('\n');
        }
        return out.toString();
    }
}
