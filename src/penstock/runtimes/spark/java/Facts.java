package penstock;

import org.apache.spark.SparkContext;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.status.api.v1.ShuffleReadMetrics;
import org.apache.spark.status.api.v1.TaskData;
import org.apache.spark.status.api.v1.TaskMetrics;
import scala.collection.Seq;

/** What Spark itself recorded, as lines of text: one call from Python instead of hundreds. */
public class Facts {
    /** Executors that are alive: id, host, cores, memory in bytes. */
    public static String executors(SparkContext sc) {
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

    /** Tasks of all attempts of all stages of a job group, in the order of the stages. */
    public static String tasks(SparkContext sc, String group) throws Exception {
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
                            out.append('\t').append(m.executorRunTime()).append('\t').append(m.executorCpuTime())
                               .append('\t').append(r.localBytesRead()).append('\t').append(r.remoteBytesRead())
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
