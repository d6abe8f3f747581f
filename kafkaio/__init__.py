"""The only package that talks to Kafka: ranges to Arrow, times to offsets, positions, delivery."""
