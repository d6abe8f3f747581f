import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * The rival Flink: its event-time temporal join of a topic with a versioned table, to Kafka, in one process.
 *
 * <p>Event times are the records' timestamps. The table is an upsert-kafka source, in which a record without a value
 * deletes its key, or a versioned view (deduplication) of all records, in which it is a version that is null. Exactly
 * once, with a checkpoint every second. The output is {"left": value, "right": value or null}.
 */
public final class TableFlink {
    private static final String COLUMNS = "k STRING, v STRING, event_time TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', ";

    /**
     * Arguments: bootstrap servers, left, right and output topic, state folder, how far watermarks lie behind in
     * seconds, idle time-out of the sources in milliseconds (0: none), and what the table is: upsert or view.
     */
    public static void main(String[] arguments) throws Exception {
        Configuration config = new Configuration();
        config.setString("parallelism.default", "1");
        config.setString("execution.checkpointing.interval", "1 s");
        config.setString("execution.checkpointing.dir", "file://" + arguments[4]);
        config.setString("table.exec.source.idle-timeout", arguments[6] + " ms");
        TableEnvironment tables = TableEnvironment.create(
                EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(config).build());
        String watermark = "WATERMARK FOR event_time AS event_time - INTERVAL '" + arguments[5] + "' SECOND";
        String keyed = ", 'key.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'";
        String appended = keyed + ", 'key.fields' = 'k', 'scan.startup.mode' = 'earliest-offset'";
        create(tables, "lefts", COLUMNS + watermark, "kafka", arguments[0], arguments[1], appended);
        if (arguments[7].equals("view")) {
            create(tables, "changes", COLUMNS + watermark, "kafka", arguments[0], arguments[2], appended);
            tables.executeSql("CREATE VIEW rights AS SELECT k, v, event_time FROM (SELECT *, ROW_NUMBER()"
                    + " OVER (PARTITION BY k ORDER BY event_time DESC) AS n FROM changes) WHERE n = 1");
        } else {
            create(tables, "rights", COLUMNS + watermark + ", PRIMARY KEY (k) NOT ENFORCED", "upsert-kafka",
                    arguments[0], arguments[2], keyed);
        }
        create(tables, "joined", "j STRING", "kafka", arguments[0], arguments[3],
                ", 'sink.delivery-guarantee' = 'exactly-once', 'properties.transaction.timeout.ms' = '60000'"
                        + ", 'sink.transactional-id-prefix' = '" + arguments[3] + "'");
        tables.executeSql("INSERT INTO joined"
                        + " SELECT '{\"left\":' || lefts.v || ',\"right\":' || COALESCE(rights.v, 'null') || '}'"
                        + " FROM lefts LEFT JOIN rights FOR SYSTEM_TIME AS OF lefts.event_time ON lefts.k = rights.k")
                .await();
    }

    private static void create(
            TableEnvironment tables, String name, String columns, String connector, String servers, String topic,
            String options) {
        tables.executeSql("CREATE TABLE " + name + " (" + columns + ") WITH ('connector' = '" + connector
                + "', 'topic' = '" + topic + "', 'properties.bootstrap.servers' = '" + servers
                + "', 'value.format' = 'raw'" + options + ")");
    }
}
