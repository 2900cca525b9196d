package penstock;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.MapOutputTracker;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.status.api.v1.ShuffleReadMetrics;
import org.apache.spark.status.api.v1.TaskData;
import org.apache.spark.status.api.v1.TaskMetrics;
import scala.Option;
import scala.collection.Seq;

/** What Spark itself recorded, as lines of text: one call from Python instead of hundreds. */
public class Facts {
    /** Stages that are remembered: more than the tasks of any batch that is asked for have. */
    private static final int KEPT = 1000;
    private static final Stages STAGES = new Stages();

    /** What each stage reads and writes, which Spark's own records of stages do not say. */
    public static class Stages extends SparkListener {
        final ConcurrentHashMap written = new ConcurrentHashMap();
        final ConcurrentHashMap parents = new ConcurrentHashMap();

        public void onStageSubmitted(SparkListenerStageSubmitted event) {
            StageInfo info = event.stageInfo();
            Integer stage = Integer.valueOf(info.stageId());
            if (info.shuffleDepId().isDefined()) this.written.put(stage, info.shuffleDepId().get());
            this.parents.put(stage, info.parentIds());
            Integer old = Integer.valueOf(info.stageId() - KEPT);
            this.written.remove(old);
            this.parents.remove(old);
        }
    }

    /** Listen from now on; once for each context. */
    public void listen(SparkContext sc) {
        sc.addSparkListener(STAGES);
    }

    /** By a handle: SparkEnv names classes that are not shipped, and cannot be compiled against. */
    private static MapOutputTrackerMaster tracker(SparkContext sc) throws Exception {
        Object env = sc.env();
        try {
            return (MapOutputTrackerMaster) MethodHandles.publicLookup()
                .findVirtual(env.getClass(), "mapOutputTracker", MethodType.methodType(MapOutputTracker.class))
                .invokeWithArguments(new Object[] {env});
        } catch (Throwable error) {
            throw new IllegalStateException("Spark has no tracker of map outputs", error);
        }
    }

    /**
     * Bytes of a task that another executor on its host had written. Spark counts them as local
     * where it reads them from that executor's disk; the sizes of the blocks, which Spark keeps to
     * within a tenth, say which part of the local bytes they are.
     */
    private static long hostLocal(SparkContext sc, int stage, TaskData task, long local) throws Exception {
        SparkConf conf = sc.conf();
        Object parents = STAGES.parents.get(Integer.valueOf(stage));
        if (local == 0 || parents == null || !conf.getBoolean("spark.shuffle.readHostLocalDisk", true)
                || conf.getBoolean("spark.shuffle.useOldFetchProtocol", false)) return 0;
        MapOutputTrackerMaster tracker = tracker(sc);
        double own = 0, near = 0;
        for (int p = 0; p < ((Seq) parents).size(); p++) {
            Object shuffle = STAGES.written.get(((Seq) parents).apply(p));
            Option status = shuffle == null ? null : tracker.shuffleStatuses().get(shuffle);
            if (status == null || status.isEmpty()) continue;
            MapStatus[] blocks = ((ShuffleStatus) status.get()).mapStatuses();
            for (int b = 0; b < blocks.length; b++) {
                if (blocks[b] == null) continue;
                long size = blocks[b].getSizeForBlock(task.partitionId());
                if (blocks[b].location().executorId().equals(task.executorId())) own += size;
                else if (blocks[b].location().host().equals(task.host())) near += size;
            }
        }
        return near == 0 ? 0 : Math.round(local * (near / (own + near)));
    }

    /** Executors that are alive: id, host, cores, memory in bytes. */
    public String executors(SparkContext sc) {
        Seq all = sc.statusStore().executorList(true);
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < all.size(); i++) {
            ExecutorSummary e = (ExecutorSummary) all.apply(i);
            String at = e.hostPort();
            int colon = at.lastIndexOf(':');
            out.append(e.id()).append('\t').append(colon < 0 ? at : at.substring(0, colon))
               .append('\t').append(e.totalCores()).append('\t').append(e.maxMemory()).append('\n');
        }
        return out.toString();
    }

    /** Tasks of a job group that run now: layer, partition, executor, milliseconds since launch. */
    public String running(SparkContext sc, String group) {
        AppStatusStore store = sc.statusStore();
        StringBuilder out = new StringBuilder();
        int[] jobs = sc.statusTracker().getJobIdsForGroup(group);
        long now = System.currentTimeMillis();
        for (int j = 0; j < jobs.length; j++) {
            Seq stages = store.job(jobs[j]).stageIds();
            for (int s = 0; s < stages.size(); s++) {
                int stage = ((Integer) stages.apply(s)).intValue();
                int layer = 0;
                for (int o = 0; o < stages.size(); o++)
                    if (((Integer) stages.apply(o)).intValue() < stage) layer++;
                int last;
                try {
                    last = store.lastStageAttempt(stage).attemptId();
                } catch (Exception neverRun) {
                    continue;
                }
                Seq tasks = store.taskList(stage, last, 1000000);
                for (int t = 0; t < tasks.size(); t++) {
                    TaskData d = (TaskData) tasks.apply(t);
                    if (!d.status().equals("RUNNING")) continue;
                    out.append(layer).append('\t').append(d.partitionId()).append('\t')
                       .append(d.executorId()).append('\t').append(now - d.launchTime().getTime()).append('\n');
                }
            }
        }
        return out.toString();
    }

    /** Tasks of all attempts of all stages of a job group, in the order of the stages. */
    public String tasks(SparkContext sc, String group) throws Exception {
        sc.listenerBus().waitUntilEmpty();
        AppStatusStore store = sc.statusStore();
        StringBuilder out = new StringBuilder();
        int[] jobs = sc.statusTracker().getJobIdsForGroup(group);
        for (int j = 0; j < jobs.length; j++) {
            Seq stages = store.job(jobs[j]).stageIds();
            for (int s = 0; s < stages.size(); s++) {
                int stage = ((Integer) stages.apply(s)).intValue();
                int last;
                try {
                    last = store.lastStageAttempt(stage).attemptId();
                } catch (Exception neverRun) {
                    continue;
                }
                for (int attempt = 0; attempt <= last; attempt++) {
                    Seq tasks = store.taskList(stage, attempt, 1000000);
                    for (int t = 0; t < tasks.size(); t++) {
                        TaskData d = (TaskData) tasks.apply(t);
                        out.append(jobs[j]).append('\t').append(stage).append('\t').append(attempt)
                           .append('\t').append(d.partitionId()).append('\t').append(d.executorId())
                           .append('\t').append(d.host()).append('\t').append(d.status());
                        if (d.taskMetrics().isDefined()) {
                            TaskMetrics m = (TaskMetrics) d.taskMetrics().get();
                            ShuffleReadMetrics r = m.shuffleReadMetrics();
                            long near = hostLocal(sc, stage, d, r.localBytesRead());
                            out.append('\t').append(m.executorRunTime()).append('\t').append(m.executorCpuTime())
                               .append('\t').append(r.localBytesRead() - near).append('\t').append(near)
                               .append('\t').append(r.remoteBytesRead())
                               .append('\t').append(m.peakExecutionMemory());
                        }
                        out.append('\n');
                    }
                }
            }
        }
        return out.toString();
    }
}
