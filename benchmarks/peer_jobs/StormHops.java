import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * A chain of bolts that pass a tuple on: what a hop, serialisation and acking cost on Storm.
 *
 * <p>Usage: StormHops HOPS ACKING SERIALIZING WARM_S SECONDS, and prints tuples and CPU seconds.
 */
public final class StormHops {
  static final LongAdder ARRIVED = new LongAdder();

  /** Emits a key and a number as fast as it may. */
  public static final class Numbers extends BaseRichSpout {
    private final boolean acking;
    private SpoutOutputCollector collector;
    private long number;

    Numbers(boolean acking) {
      this.acking = acking;
    }

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector out) {
      collector = out;
    }

    @Override
    public void nextTuple() {
      Values values = new Values("item-" + number % 1000, number);
      if (acking) {
        collector.emit(values, number);
      } else {
        collector.emit(values);
      }
      number++;
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("key", "number"));
    }
  }

  /** Passes tuples on, or counts them where they end. */
  public static final class Pass extends BaseBasicBolt {
    private final boolean last;

    Pass(boolean last) {
      this.last = last;
    }

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      if (last) {
        ARRIVED.increment();
      } else {
        collector.emit(new Values(tuple.getString(0), tuple.getLong(1)));
      }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("key", "number"));
    }
  }

  public static void main(String[] args) throws Exception {
    int hops = Integer.parseInt(args[0]);
    boolean acking = Boolean.parseBoolean(args[1]);
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("hop-0", new Numbers(acking), 1);
    for (int hop = 1; hop <= hops; hop++) {
      builder.setBolt("hop-" + hop, new Pass(hop == hops), 1).shuffleGrouping("hop-" + (hop - 1));
    }
    Config conf = new Config();
    conf.setNumWorkers(1);
    conf.setNumAckers(acking ? 1 : 0);
    conf.setMaxSpoutPending(5000);
    conf.put(Config.TOPOLOGY_TESTING_ALWAYS_TRY_SERIALIZE, Boolean.parseBoolean(args[2]));
    var system =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    try (LocalCluster cluster = new LocalCluster();
        LocalCluster.LocalTopology topology =
            cluster.submitTopology("hops", conf, builder.createTopology())) {
      while (ARRIVED.sum() == 0) {
        Thread.sleep(50);
      }
      Thread.sleep((long) (1000 * Double.parseDouble(args[3])));
      long tuples = ARRIVED.sum();
      long cpu = system.getProcessCpuTime();
      long began = System.nanoTime();
      Thread.sleep((long) (1000 * Double.parseDouble(args[4])));
      double seconds = (System.nanoTime() - began) / 1e9;
      double used = (system.getProcessCpuTime() - cpu) / 1e9;
      System.out.println("RESULT " + (ARRIVED.sum() - tuples) / seconds + " " + used / seconds);
    }
    System.exit(0);
  }
}
