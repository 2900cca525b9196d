package penstock;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MapInArrow;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSourceV1;
import scala.collection.Seq;

/** Says which Parquet files a batch of a stream reads, where it only reads and renames their columns. */
public class Scan {
    /**
     * A part for each source, divided by form feeds: lines of a kind and a text, divided by a tab. "c" is the column
     * of the file for each column of the stream, in order; "o" an option; "f" a file. Empty if it does more than that.
     */
    public String files(StreamExecution stream, int sources) {
        LogicalPlan plan = stream.lastExecution().analyzed();
        if (plan instanceof WriteToMicroBatchDataSourceV1) plan = ((WriteToMicroBatchDataSourceV1) plan).query();
        StringBuilder out = new StringBuilder();
        if (sources == 1) return this.one(plan, plan.output(), out) ? out.toString() : "";
        if (!(plan instanceof Union) || plan.children().size() != sources) return "";
        for (int i = 0; i < sources; i++) {
            LogicalPlan tagged = (LogicalPlan) plan.children().apply(i);
            while (tagged instanceof Project) tagged = (LogicalPlan) tagged.children().apply(0);
            if (!(tagged instanceof MapInArrow)) return "";
            LogicalPlan rows = (LogicalPlan) tagged.children().apply(0);
            if (i > 0) out.append('\f');
            if (!this.one(rows, rows.output(), out)) return "";
        }
        return out.toString();
    }

    private boolean one(LogicalPlan plan, Seq output, StringBuilder out) {
        long[] wanted = new long[output.size()];
        for (int i = 0; i < wanted.length; i++) wanted[i] = ((AttributeReference) output.apply(i)).exprId().id();
        while (!(plan instanceof LogicalRelation)) {
            if (plan instanceof LocalRelation) return ((LocalRelation) plan).data().isEmpty();
            if (plan instanceof Project) {
                Seq list = ((Project) plan).projectList();
                for (int i = 0; i < wanted.length; i++) if ((wanted[i] = renamed(list, wanted[i])) < 0) return false;
            } else if (!(plan instanceof SubqueryAlias || plan instanceof EventTimeWatermark)) return false;
            plan = (LogicalPlan) plan.children().apply(0);
        }
        if (!(((LogicalRelation) plan).relation() instanceof HadoopFsRelation)) return false;
        HadoopFsRelation files = (HadoopFsRelation) ((LogicalRelation) plan).relation();
        if (files.fileFormat().getClass() != ParquetFileFormat.class || files.partitionSchema().length() > 0
            || files.bucketSpec().isDefined()) return false;
        for (int i = 0; i < wanted.length; i++) {
            String column = null;
            for (int j = 0; j < plan.output().size(); j++) {
                AttributeReference one = (AttributeReference) plan.output().apply(j);
                // What is no column of the files is worked out by Spark: their names, for example.
                if (one.exprId().id() == wanted[i] && j < files.dataSchema().length()) column = one.name();
            }
            if (column == null || column.indexOf('\n') >= 0 || column.indexOf('\f') >= 0) return false;
            out.append("c\t").append(column).append('\n');
        }
        Seq keys = files.options().keys().toSeq();
        for (int i = 0; i < keys.size(); i++) out.append("o\t").append(keys.apply(i)).append('\n');
        String[] paths = files.location().inputFiles();
        for (int i = 0; i < paths.length; i++) out.append("f\t").append(paths[i]).append('\n');
        return true;
    }

    /** What a column is called below a projection; -1 if it is worked out there. */
    private static long renamed(Seq list, long wanted) {
        for (int i = 0; i < list.size(); i++) {
            Object entry = list.apply(i);
            if (entry instanceof AttributeReference && ((AttributeReference) entry).exprId().id() == wanted) return wanted;
            if (entry instanceof Alias && ((Alias) entry).exprId().id() == wanted)
                return ((Alias) entry).child() instanceof AttributeReference
                    ? ((AttributeReference) ((Alias) entry).child()).exprId().id() : -1;
        }
        return -1;
    }
}
