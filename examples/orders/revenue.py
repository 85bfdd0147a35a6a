"""The revenue by country and five minutes, from the orders of all tills and of the web shop, as a table and a page.

    python revenue.py HOST:PORT FOLDER [--follow]

FOLDER gets `revenue` and `rejected`, tables of Delta Lake, `checkpoints`, and the page `page.html`. Without --follow
the program reads what there is and ends; either way it continues where it ended before, also after a crash.
"""

from __future__ import annotations

import sys
from pathlib import Path

import plotly.express
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from gregor.pipeline.delta_lake import delta_settings
from gregor.pipeline.session import spark_session

ORDER = "order STRING, country STRING, cents BIGINT, at TIMESTAMP"
WINDOW = "5 minutes"
PATIENCE = "10 minutes"
"""The longest time by which an order may be older than the newest order."""


def orders(spark: SparkSession, bootstrap_servers: str) -> DataFrame:
    """Return the stream of all messages, with the fields of the order and whether it is one."""
    messages = (
        spark.readStream.format("kafka_raw")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "tills,web")
        .option("startingOffsets", "earliest")
        .load()
    )
    text = f.col("value").cast("string")
    order = f.from_json(text, ORDER)
    fields = messages.select("topic", "partition", "offset", text.alias("text"), order.alias("o"))
    is_good = "coalesce(o.order IS NOT NULL AND o.country IS NOT NULL AND o.cents > 0 AND o.at IS NOT NULL, false)"
    return fields.selectExpr("topic", "partition", "offset", "text", "o.*", f"{is_good} AS is_good")


def revenue(found: DataFrame) -> DataFrame:
    """Return the revenue of each window and country so far. An order that a till has sent twice counts once."""
    timely = found.where("is_good").withWatermark("at", PATIENCE)
    windows = timely.groupBy(f.window("at", WINDOW).alias("w"), "country").agg(
        f.collect_set(f.struct("order", "cents", "topic")).alias("orders")
    )
    return windows.select(
        f.col("w.start").alias("start"),
        "country",
        f.size("orders").alias("orders"),
        f.expr("size(filter(orders, o -> o.topic = 'tills'))").alias("from_tills"),
        f.expr("aggregate(orders, 0L, (sum, o) -> sum + o.cents)").alias("cents"),
    )


def start(spark: SparkSession, bootstrap_servers: str, folder: Path, *, follows: bool) -> list[StreamingQuery]:
    """Start the two streams, into the table of revenue and into that of rejected messages.

    Without `follows` the second one starts when the first one has ended.
    """
    place = str(folder / "revenue")

    def upsert(windows: DataFrame, _: int) -> None:
        table = DeltaTable.createIfNotExists(spark).location(place).addColumns(windows.schema).execute()
        same = "known.start = new.start AND known.country = new.country"
        merge = table.alias("known").merge(windows.alias("new"), same)
        # A micro-batch that is repeated after a crash has the same totals, so it changes nothing.
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    found = orders(spark, bootstrap_servers)
    when = {"processingTime": "10 seconds"} if follows else {"availableNow": True}
    merged = revenue(found).writeStream.outputMode("update").foreachBatch(upsert).trigger(**when)
    totals = merged.option("checkpointLocation", str(folder / "checkpoints/revenue")).start()
    if not follows:
        totals.awaitTermination()
    rejected = found.where("NOT is_good").select("topic", "partition", "offset", "text").writeStream.format("delta")
    appended = rejected.option("checkpointLocation", str(folder / "checkpoints/rejected")).trigger(**when)
    return [totals, appended.start(str(folder / "rejected"))]


def write_page(spark: SparkSession, folder: Path) -> None:
    """Write the page with the table's present rows."""
    rows = spark.read.format("delta").load(str(folder / "revenue")).orderBy("start", "country").toPandas()
    rows["euros"] = rows["cents"] / 100
    counts = f"{rows['orders'].sum()} orders, {rows['from_tills'].sum()} of them from tills"
    title = f"{rows['euros'].sum():,.2f} euros in {counts}"
    page = plotly.express.bar(rows, x="start", y="euros", color="country", hover_data=["orders"], title=title)
    page.write_html(folder / "page.html")
    print(title)


def main() -> None:
    """Run the streams to their end, or until Ctrl-C."""
    bootstrap_servers, folder = sys.argv[1], Path(sys.argv[2]).absolute()
    follows = "--follow" in sys.argv
    spark = spark_session("revenue", config={**delta_settings(), "spark.sql.shuffle.partitions": "2"})
    totals, rejected = start(spark, bootstrap_servers, folder, follows=follows)
    while not totals.awaitTermination(10):
        if follows and (folder / "revenue").exists():
            write_page(spark, folder)
    rejected.awaitTermination()
    write_page(spark, folder)
    dropped = sum(
        operator["numRowsDroppedByWatermark"]
        for progress in totals.recentProgress
        for operator in progress["stateOperators"]
    )
    count = spark.read.format("delta").load(str(folder / "rejected")).count()
    print(f"{count} messages are no orders; {dropped} came too late in this run")


if __name__ == "__main__":
    main()
