package penstock;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import org.apache.spark.MapOutputTracker;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleStatus;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.status.api.v1.TaskData;
import scala.Option;
import scala.collection.Seq;

/** What Spark itself recorded, as lines of text: one call from Python instead of hundreds. */
public class Facts {
    /** Stages, and jobs, that are remembered: more than any batch that is asked for has. */
    private static final int KEPT = 1000, JOBS = 32;
    /** Longest wait for what Spark tells of a job that is over, in milliseconds. */
    private static final long PATIENCE_MS = 10000;
    private static final Told TOLD = new Told();

    /** One job: its group, the attempts at its tasks, and whether it is over. */
    public static class Job {
        String group = "";
        boolean ended;
        final ArrayList tasks = new ArrayList();
    }

    /**
     * What Spark tells of jobs, as it comes. To ask Spark's own records one has to wait until they are up to date, for
     * which there is only a loop that sleeps for ten milliseconds.
     */
    public static class Told extends SparkListener {
        final ConcurrentHashMap written = new ConcurrentHashMap();
        final ConcurrentHashMap parents = new ConcurrentHashMap();
        private final TreeMap jobs = new TreeMap();
        private final HashMap jobOf = new HashMap();

        public void onStageSubmitted(SparkListenerStageSubmitted event) {
            StageInfo info = event.stageInfo();
            Integer stage = Integer.valueOf(info.stageId());
            if (info.shuffleDepId().isDefined()) this.written.put(stage, info.shuffleDepId().get());
            this.parents.put(stage, info.parentIds());
            Integer old = Integer.valueOf(info.stageId() - KEPT);
            this.written.remove(old);
            this.parents.remove(old);
        }

        synchronized void clear() {
            this.written.clear();
            this.parents.clear();
            this.jobs.clear();
            this.jobOf.clear();
        }

        public synchronized void onJobStart(SparkListenerJobStart event) {
            Job job = new Job();
            if (event.properties() != null) job.group = event.properties().getProperty("spark.jobGroup.id", "");
            // The user's own jobs may have any number of tasks.
            if (!job.group.startsWith("penstock-")) return;
            Integer id = Integer.valueOf(event.jobId());
            this.jobs.put(id, job);
            for (int i = 0; i < event.stageIds().size(); i++) this.jobOf.put(event.stageIds().apply(i), id);
            if (this.jobs.size() > JOBS) {
                this.jobs.remove(this.jobs.firstKey());
                this.jobOf.values().removeIf(new Gone(this.jobs));
            }
        }

        public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
            Object id = this.jobOf.get(Integer.valueOf(event.stageId()));
            if (id != null) ((Job) this.jobs.get(id)).tasks.add(event);
        }

        public synchronized void onJobEnd(SparkListenerJobEnd event) {
            Job job = (Job) this.jobs.get(Integer.valueOf(event.jobId()));
            if (job != null) job.ended = true;
            this.notifyAll();
        }

        /** The jobs of a group by their numbers, once they are over. */
        synchronized TreeMap of(String group) throws InterruptedException {
            long until = System.currentTimeMillis() + PATIENCE_MS;
            while (true) {
                TreeMap found = new TreeMap();
                boolean over = true;
                for (Iterator each = this.jobs.entrySet().iterator(); each.hasNext(); ) {
                    Map.Entry one = (Map.Entry) each.next();
                    if (!((Job) one.getValue()).group.equals(group)) continue;
                    found.put(one.getKey(), one.getValue());
                    over &= ((Job) one.getValue()).ended;
                }
                long left = until - System.currentTimeMillis();
                if (left <= 0 || (over && !found.isEmpty())) return found;
                this.wait(left);
            }
        }
    }

    /** Whether a job is not remembered any more. */
    public static class Gone implements Predicate {
        private final TreeMap jobs;

        public Gone(TreeMap jobs) {
            this.jobs = jobs;
        }

        public boolean test(Object job) {
            return !this.jobs.containsKey(job);
        }
    }

    /** Listen from now on; once for each context. */
    public void listen(SparkContext sc) {
        // Another context of this process counts from the beginning again.
        TOLD.clear();
        sc.addSparkListener(TOLD);
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
    private static long hostLocal(SparkContext sc, int stage, TaskInfo task, long local) throws Exception {
        SparkConf conf = sc.conf();
        Object parents = TOLD.parents.get(Integer.valueOf(stage));
        if (local == 0 || parents == null || !conf.getBoolean("spark.shuffle.readHostLocalDisk", true)
                || conf.getBoolean("spark.shuffle.useOldFetchProtocol", false)) return 0;
        MapOutputTrackerMaster tracker = tracker(sc);
        double own = 0, near = 0;
        for (int p = 0; p < ((Seq) parents).size(); p++) {
            Object shuffle = TOLD.written.get(((Seq) parents).apply(p));
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

    /** Tasks of all attempts of all stages of a job group, in the order in which they ended. */
    public String tasks(SparkContext sc, String group) throws Exception {
        StringBuilder out = new StringBuilder();
        for (Iterator jobs = TOLD.of(group).entrySet().iterator(); jobs.hasNext(); ) {
            Map.Entry job = (Map.Entry) jobs.next();
            Object[] tasks;
            synchronized (TOLD) {
                tasks = ((Job) job.getValue()).tasks.toArray();
            }
            for (int t = 0; t < tasks.length; t++) {
                SparkListenerTaskEnd end = (SparkListenerTaskEnd) tasks[t];
                TaskInfo d = end.taskInfo();
                out.append(job.getKey()).append('\t').append(end.stageId()).append('\t').append(end.stageAttemptId())
                   .append('\t').append(d.partitionId()).append('\t').append(d.executorId())
                   .append('\t').append(d.host()).append('\t').append(d.status());
                TaskMetrics m = end.taskMetrics();
                if (m != null) {
                    ShuffleReadMetrics r = m.shuffleReadMetrics();
                    long near = hostLocal(sc, end.stageId(), d, r.localBytesRead());
                    out.append('\t').append(m.executorRunTime()).append('\t').append(m.executorCpuTime())
                       .append('\t').append(r.localBytesRead() - near).append('\t').append(near)
                       .append('\t').append(r.remoteBytesRead())
                       .append('\t').append(m.peakExecutionMemory());
                }
                out.append('\n');
            }
        }
        return out.toString();
    }
}
