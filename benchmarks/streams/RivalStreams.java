import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/**
 * The rival Kafka Streams: its stream-stream left join of two topics, to Kafka.
 *
 * <p>Two threads, as there are two cores; stores (RocksDB), changelogs and intervals are its defaults. The output is
 * {"left": value, "right": value or null} with the join key as key. It runs until it is ended.
 */
public final class RivalStreams {
    private static final byte[] LEFT = utf8("{\"left\":");
    private static final byte[] RIGHT = utf8(",\"right\":");
    private static final byte[] NULL = utf8("null");
    private static final byte[] END = utf8("}");

    /**
     * Arguments: bootstrap servers, left, right and output topic, state folder, window and grace in milliseconds,
     * processing guarantee.
     */
    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + arguments[3]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.Bytes().getClass());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArray().getClass());
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[7]);
        config.put("auto.offset.reset", "earliest");
        Duration before = Duration.ofMillis(Long.parseLong(arguments[5]));
        Duration grace = Duration.ofMillis(Long.parseLong(arguments[6]));

        StreamsBuilder builder = new StreamsBuilder();
        KStream<Bytes, byte[]> left = builder.stream(arguments[1]);
        KStream<Bytes, byte[]> right = builder.stream(arguments[2]);
        left.leftJoin(
                        right,
                        RivalStreams::pair,
                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, grace).before(before))
                .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static byte[] pair(byte[] left, byte[] right) {
        byte[] completed = right == null ? NULL : right;
        byte[] row = new byte[LEFT.length + left.length + RIGHT.length + completed.length + END.length];
        int at = 0;
        for (byte[] part : new byte[][] {LEFT, left, RIGHT, completed, END}) {
            System.arraycopy(part, 0, row, at, part.length);
            at += part.length;
        }
        return row;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
