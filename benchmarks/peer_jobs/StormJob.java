import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.bolt.KafkaBolt;
import org.apache.storm.kafka.bolt.mapper.FieldNameBasedTupleToKafkaMapper;
import org.apache.storm.kafka.bolt.selector.DefaultTopicSelector;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseWindowedBolt;
import org.apache.storm.topology.base.BaseWindowedBolt.Duration;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.windowing.TupleWindow;

/**
 * The queries on Storm, in a cluster of one JVM, with acking.
 *
 * Usage: StormJob SERVERS INTO OUT WORKLOAD
 */
public final class StormJob {
  /** Emits the words of a line, or its first word, or an auction and the time of a bid. */
  public static final class Split extends BaseBasicBolt {
    private final String workload;

    Split(String workload) {
      this.workload = workload;
    }

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      String line = tuple.getStringByField("value");
      if (workload.equals("q5")) {
        int end = line.indexOf(' ');
        // A window of Storm has its end and not its beginning; those of the query are the other way.
        long time = Long.parseLong(line.substring(end + 1)) + 1;
        collector.emit(new Values(line.substring(0, end), time));
      } else if (workload.equals("words")) {
        for (String word : line.split(" ")) {
          collector.emit(new Values(word));
        }
      } else {
        int end = line.indexOf(' ');
        collector.emit(new Values(end < 0 ? line : line.substring(0, end)));
      }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      boolean timed = workload.equals("q5");
      declarer.declare(timed ? new Fields("word", "time") : new Fields("word"));
    }
  }

  /** Counts bids by auction in windows, and emits the auctions with most, or that there are none. */
  public static final class Windows extends BaseWindowedBolt {
    private OutputCollector collector;

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
      collector = out;
    }

    @Override
    public void execute(TupleWindow window) {
      Map<String, Long> counts = new HashMap<>();
      for (Tuple tuple : window.get()) {
        counts.merge(tuple.getString(0), 1L, Long::sum);
      }
      long most = counts.values().stream().mapToLong(Long::longValue).max().orElse(0L);
      List<String> best = new ArrayList<>();
      counts.forEach((auction, count) -> {
        if (count == most) {
          best.add(auction);
        }
      });
      collector.emit(new Values(window.getEndTimestamp(), String.join(" ", best), most));
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("end", "auctions", "most"));
    }
  }

  /** Compares what the two instances of Windows found, once both have told of a window. */
  public static final class Most extends BaseBasicBolt {
    private final Map<Long, Tuple> first = new HashMap<>();

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      long end = tuple.getLong(0);
      Tuple other = first.remove(end);
      if (other == null) {
        first.put(end, tuple);
        return;
      }
      long most = Math.max(tuple.getLong(2), other.getLong(2));
      for (Tuple one : new Tuple[] {tuple, other}) {
        if (one.getLong(2) == most && most > 0) {
          for (String auction : one.getString(1).split(" ")) {
            collector.emit(new Values(end / 1000 + "-" + auction, Long.toString(most)));
          }
        }
      }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("key", "message"));
    }
  }

  /** Counts words, and emits each new count. */
  public static final class Count extends BaseBasicBolt {
    private final Map<String, Long> counts = new HashMap<>();

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      String word = tuple.getString(0);
      long count = counts.merge(word, 1L, Long::sum);
      collector.emit(new Values(word, Long.toString(count)));
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("key", "message"));
    }
  }

  public static void main(String[] args) throws Exception {
    String servers = args[0];
    KafkaSpoutConfig<String, String> source =
        KafkaSpoutConfig.builder(servers, args[1])
            .setProp(ConsumerConfig.GROUP_ID_CONFIG, "peer")
            .setProp(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed")
            .setProp(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 2000)
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST)
            .setPollTimeoutMs(20)
            .setMaxUncommittedOffsets(10_000_000)
            .build();
    Properties producer = new Properties();
    producer.put("bootstrap.servers", servers);
    producer.put("linger.ms", "5");
    producer.put("acks", "all");
    producer.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    producer.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    KafkaBolt<String, String> sink =
        new KafkaBolt<String, String>()
            .withProducerProperties(producer)
            .withTopicSelector(new DefaultTopicSelector(args[2]))
            .withTupleToKafkaMapper(new FieldNameBasedTupleToKafkaMapper<>("key", "message"));
    TopologyBuilder builder = new TopologyBuilder();
    builder.setSpout("lines", new KafkaSpout<>(source), 1);
    builder.setBolt("split", new Split(args[3]), 1).localOrShuffleGrouping("lines");
    boolean windows = args[3].equals("q5");
    if (windows) {
      BaseWindowedBolt bolt =
          new Windows()
              .withWindow(Duration.seconds(10), Duration.seconds(2))
              .withTimestampField("time")
              .withLag(Duration.seconds(60))
              .withWatermarkInterval(Duration.of(200));
      builder.setBolt("windows", bolt, 2).fieldsGrouping("split", new Fields("word"));
      builder.setBolt("count", new Most(), 1).globalGrouping("windows");
    } else {
      builder.setBolt("count", new Count(), 2).fieldsGrouping("split", new Fields("word"));
    }
    builder.setBolt("out", sink, 1).localOrShuffleGrouping("count");
    Config conf = new Config();
    conf.setNumWorkers(1);
    conf.setNumAckers(1);
    if (windows) {
      // Tuples of windows are acked when they have left the last one.
      conf.setMessageTimeoutSecs(600);
    } else {
      conf.setMaxSpoutPending(5000);
    }
    try (LocalCluster cluster = new LocalCluster();
        LocalCluster.LocalTopology topology =
            cluster.submitTopology("peer", conf, builder.createTopology())) {
      Thread.sleep(Long.MAX_VALUE);
    }
  }
}
