// SPDX-License-Identifier: GPL-2.0-or-later
// Turns the drawing of an opened fold into a zoomable one, with the numbers of the table beside it.
"use strict";
(() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const read = (table) => {
    const names = [...table.querySelectorAll("thead th")].map((th) => th.textContent.replace(/\s+/g, " ").trim());
    const columns = names.map(() => []);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, index) => {
        const value = parseFloat(cell.textContent);
        columns[index].push(Number.isFinite(value) ? value : null);
      });
    }
    return { names, columns };
  };
  // Each unit has a scale of its own; the first two get an axis.
  const unit = (name) => (/MB\/s/.test(name) ? "MB/s" : /ms$/.test(name) ? "ms" : /%$/.test(name) ? "%" : "count");
  const show = (fold) => {
    const holder = fold.querySelector(".zoom");
    const { names, columns } = read(fold.querySelector("table"));
    const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4]];
    const series = names.slice(1).map((name, index) => ({
      label: name, scale: unit(name), stroke: color(`--s${index % 6}`), width: 2, dash: dashes[index % 6],
      show: /MB\/s|in flight|queue full/.test(name), points: { show: false },
    }));
    const axis = (extra) => ({ stroke: color("--soft"), grid: { stroke: color("--rule") }, ...extra });
    const plot = new uPlot({
      width: holder.clientWidth, height: 300, scales: { x: { time: false } },
      series: [{ label: "s" }, ...series],
      axes: [axis({ label: "time, s" }), axis({ scale: "MB/s", label: "MB/s" }),
        axis({ scale: "count", side: 1, grid: { show: false }, label: "count" })],
    }, columns, null);
    holder.replaceChildren(plot.root);
    holder.tabIndex = 0;
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", "Zoomable drawing: plus and minus zoom, arrows move, 0 shows all");
    const [first, last] = [columns[0][0], columns[0][columns[0].length - 1]];
    const move = (from, to) => plot.setScale("x", { min: Math.max(first, from), max: Math.min(last, to) });
    holder.addEventListener("keydown", (event) => {
      const { min, max } = plot.scales.x;
      const span = max - min;
      const keys = {
        "+": [min + span / 4, max - span / 4], "=": [min + span / 4, max - span / 4],
        "-": [min - span / 2, max + span / 2], "ArrowLeft": [min - span / 4, max - span / 4],
        "ArrowRight": [min + span / 4, max + span / 4], "0": [first, last],
      };
      if (keys[event.key]) {
        event.preventDefault();
        move(...keys[event.key]);
      }
    });
    new ResizeObserver(() => plot.setSize({ width: holder.clientWidth, height: 300 })).observe(holder);
  };
  for (const fold of document.querySelectorAll("details.run")) {
    fold.addEventListener("toggle", () => fold.open && show(fold), { once: true });
  }
})();
