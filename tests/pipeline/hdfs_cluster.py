"""A cluster of HDFS in one Java process, from Hadoop's own jars, which Maven fetches at the first use."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

VERSION = "3.4.1"
JARS = (
    f"org/apache/hadoop/hadoop-client-api/{VERSION}/hadoop-client-api-{VERSION}.jar",
    f"org/apache/hadoop/hadoop-client-runtime/{VERSION}/hadoop-client-runtime-{VERSION}.jar",
    f"org/apache/hadoop/hadoop-client-minicluster/{VERSION}/hadoop-client-minicluster-{VERSION}.jar",
    "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
    "commons-logging/commons-logging/1.2/commons-logging-1.2.jar",
)
LIMIT_S = 300.0
PROGRAM = """
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public class Cluster {
    public static void main(String[] arguments) throws Exception {
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(new Configuration(), new File(arguments[0])).build();
        cluster.waitActive();
        System.out.println("port " + cluster.getNameNodePort());
        System.in.read();
        cluster.shutdown();
    }
}
"""


@contextlib.contextmanager
def hdfs_cluster(directory: Path) -> Iterator[str]:
    """Run a cluster in a directory; yield its URI. Skips the test without Maven, a Java compiler or the jars."""
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("HDFS needs Maven and a JDK")
    artifact = f"-Dartifact=org.apache.hadoop:hadoop-client-minicluster:{VERSION}"
    fetched = subprocess.run(["mvn", "-q", "dependency:get", artifact], capture_output=True, text=True, timeout=LIMIT_S)
    jars = [Path.home() / ".m2" / "repository" / jar for jar in JARS]
    if fetched.returncode or not all(jar.exists() for jar in jars):
        pytest.skip(f"the jars of HDFS could not be had: {fetched.stdout[-300:]}")
    program = directory / "Cluster.java"
    program.write_text(PROGRAM)
    command = ["java", "-Xmx600m", "-cp", ":".join(map(str, jars)), str(program), str(directory / "dfs")]
    with (directory / "log").open("w") as log:
        cluster = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert cluster.stdout is not None
            for line in cluster.stdout:
                if line.startswith("port "):
                    yield f"hdfs://127.0.0.1:{line.split()[1]}"
                    break
            else:
                pytest.fail((directory / "log").read_text()[-3000:])
        finally:
            cluster.kill()
            cluster.communicate()
