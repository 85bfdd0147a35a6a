// Replaces the element #live by its newest version at the interval that it names, unless the user is busy in it.
"use strict";

const live = document.getElementById("live");
const intervalMs = live ? Number(live.dataset.refresh) : 0;

function isInUse() {
  return document.hidden || live.querySelector("details[open]") !== null || live.contains(document.activeElement);
}

async function refresh() {
  if (!isInUse()) {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const newest = page.getElementById("live");
        if (newest && !isInUse()) live.replaceChildren(...newest.childNodes);
        document.body.classList.remove("stale");
      }
    } catch {
      document.body.classList.add("stale");
    }
  }
  setTimeout(refresh, intervalMs);
}

if (intervalMs > 0) setTimeout(refresh, intervalMs);
