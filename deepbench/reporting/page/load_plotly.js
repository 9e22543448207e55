"use strict";
/* Plotly draws the charts. A single page holds it compressed, and pages of a site have loaded it before this script. The
   promise is kept when Plotly is there, or will not be. */
const plotlyReady = (async () => {
  const packed = document.getElementById("plotly");
  if (!packed) return;
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
})().catch(() => {
  const warning = document.createElement("p");
  warning.className = "warning";
  warning.textContent = "This browser is too old for the charts of this page. The table has every number.";
  document.querySelector("main").prepend(warning);
});
