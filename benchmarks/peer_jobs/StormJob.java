import java.util.HashMap;
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
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The two counts on Storm, in a cluster of one JVM, with acking.
 *
 * Usage: StormJob SERVERS INTO OUT WORKLOAD
 */
public final class StormJob {
  /** Emits the words of a line, or its first word. */
  public static final class Split extends BaseBasicBolt {
    private final boolean all;

    Split(boolean all) {
      this.all = all;
    }

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      String line = tuple.getStringByField("value");
      if (all) {
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
      declarer.declare(new Fields("word"));
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
    builder.setBolt("split", new Split(args[3].equals("words")), 1).localOrShuffleGrouping("lines");
    builder.setBolt("count", new Count(), 2).fieldsGrouping("split", new Fields("word"));
    builder.setBolt("out", sink, 1).localOrShuffleGrouping("count");
    Config conf = new Config();
    conf.setNumWorkers(1);
    conf.setNumAckers(1);
    conf.setMaxSpoutPending(5000);
    try (LocalCluster cluster = new LocalCluster();
        LocalCluster.LocalTopology topology =
            cluster.submitTopology("peer", conf, builder.createTopology())) {
      Thread.sleep(Long.MAX_VALUE);
    }
  }
}
