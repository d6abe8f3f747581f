import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * The rival Kafka Streams: its left join of a topic with a versioned table, with a grace period, to Kafka.
 *
 * <p>Exactly once; all else is default. The output is {"left": value, "right": value or null}. It runs until it is
 * ended.
 */
public final class TableStreams {
    /**
     * Arguments: bootstrap servers, left, right and output topic, state folder, history retention and grace period in
     * milliseconds.
     */
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put("auto.offset.reset", "earliest");
        Duration history = Duration.ofMillis(Long.parseLong(arguments[5]));
        Duration grace = Duration.ofMillis(Long.parseLong(arguments[6]));
        Serde<String> text = Serdes.String();

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream(arguments[1], Consumed.with(text, text));
        KTable<String, String> right = builder.table(
                arguments[2],
                Consumed.with(text, text),
                Materialized.as(Stores.persistentVersionedKeyValueStore("versions", history)));
        left.leftJoin(
                        right,
                        (record, version) -> "{\"left\":" + record + ",\"right\":" + version + "}",
                        Joined.with(text, text, text).withName("joined").withGracePeriod(grace))
                .to(arguments[3], Produced.with(text, text));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
