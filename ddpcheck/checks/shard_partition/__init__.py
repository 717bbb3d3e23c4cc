"""The check ``shard-partition``."""
