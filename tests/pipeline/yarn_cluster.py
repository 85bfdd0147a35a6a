"""A Yarn of one machine in one Java process, from Hadoop's own jars."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.maven_jars import Artifact, classpath

HADOOP = "3.4.1"
ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.hadoop", "hadoop-client-api", HADOOP, ""),
    ("org.apache.hadoop", "hadoop-client-runtime", HADOOP, ""),
    ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP, ""),
    # What its test classes leave to their users.
    ("junit", "junit", "4.13.2", ""),
    ("org.slf4j", "slf4j-api", "1.7.36", ""),
    ("commons-logging", "commons-logging", "1.2", ""),
    ("ch.qos.reload4j", "reload4j", "1.2.25", ""),
    ("org.bouncycastle", "bcprov-jdk18on", "1.78.1", ""),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.78.1", ""),
    ("javax.xml.bind", "jaxb-api", "2.3.1", ""),
    ("com.sun.xml.bind", "jaxb-impl", "2.3.1", ""),
    ("com.sun.xml.bind", "jaxb-core", "2.3.0.1", ""),
    ("com.sun.activation", "javax.activation", "1.2.0", ""),
)
PROGRAM = """
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

public class Yarn {
    public static void main(String[] arguments) throws Exception {
        YarnConfiguration settings = new YarnConfiguration();
        settings.set("fs.defaultFS", "file:///");
        settings.set("yarn.resourcemanager.scheduler.class",
            "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.9");
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.setInt("yarn.scheduler.minimum-allocation-mb", 256);
        MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
        cluster.init(settings);
        cluster.start();
        for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
            try (OutputStream file = new FileOutputStream(arguments[0] + "/" + name)) {
                cluster.getConfig().writeXml(file);
            }
        }
        System.out.println("started");
        System.in.read();
        System.exit(0);
    }
}
"""


@contextlib.contextmanager
def yarn_cluster(directory: Path) -> Iterator[Path]:
    """Run a Yarn in a directory; yield its HADOOP_CONF_DIR. Skips the test without Maven, Java or the jars."""
    settings = directory / "conf"
    settings.mkdir(parents=True)
    (directory / "Yarn.java").write_text(PROGRAM)
    opened = "--add-opens=java.base/java.lang=ALL-UNNAMED"
    command = ["java", opened, "-Xmx600m", "-cp", classpath(directory, ARTIFACTS), "Yarn.java", str(settings)]
    with (directory / "log").open("w") as log:
        cluster = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert cluster.stdout is not None
            if "started\n" not in iter(cluster.stdout.readline, ""):
                pytest.fail((directory / "log").read_text()[-3000:])
            yield settings
        finally:
            cluster.kill()
            cluster.communicate()
