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
  // One plot a unit, as in the drawing that they replace; cursor and zoom move through all of them together.
  const units = ["MB/s", "requests", "ms", "%"];
  const unit = (name) => (/MB\/s/.test(name) ? "MB/s" : /ms$/.test(name) ? "ms" : /%$/.test(name) ? "%" : "requests");
  const dashes = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4]];
  // A fold has its numbers once, in its table; the file is made of them when it is asked for.
  const offerCsv = (fold) => {
    const table = fold.querySelector("table");
    const line = (row) => [...row.cells].map((cell) => cell.textContent.replace(/\s+/g, " ").trim()).join(",");
    const link = document.createElement("a");
    link.textContent = "These numbers as CSV";
    link.download = `${fold.querySelector("summary").textContent}.csv`.replace(/[^A-Za-z0-9.]+/g, "-");
    link.href = `data:text/csv,${encodeURIComponent([...table.rows].map(line).join("\n"))}`;
    const paragraph = document.createElement("p");
    paragraph.className = "csv";
    paragraph.append(link);
    fold.querySelector(".tables").after(paragraph);
  };
  const fromZero = (plot, low, high) => [0, uPlot.rangeNum(0, high || 1, 0.1, true)[1]];
  const show = (fold) => {
    const holder = fold.querySelector(".zoom");
    const { names, columns } = read(fold.querySelector("table"));
    // What the drawing marks, and the look that it gives each curve, hold for the zoomable one as well.
    const numbers = (node, key) => node.dataset[key].split(" ").map(Number);
    const shaded = [...holder.querySelectorAll(".ramp")].map((node) => [...numbers(node, "from"), ...numbers(node, "to")]);
    const moments = [...holder.querySelectorAll(".event, .resent")].flatMap((node) => {
      const words = node.classList.contains("event") ? node.nextElementSibling?.textContent.trim() : "";
      return numbers(node, "at").map((at) => [at, words]);
    });
    const looks = {};
    for (const words of holder.querySelectorAll(".legend text")) {
      const look = /\bs(\d)\b/.exec(words.parentNode.previousElementSibling?.getAttribute("class") ?? "");
      if (look) looks[words.textContent] = Number(look[1]);
    }
    const shade = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.fillStyle = color("--shade");
      for (const span of shaded) {
        const [left, right] = span.map((at) => Math.min(Math.max(plot.valToPos(at, "x", true), bbox.left), bbox.left + bbox.width));
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
      }
      ctx.restore();
    };
    // As in the drawing that this replaces, the words of an event stand once, in a line of their own.
    const mark = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      [ctx.strokeStyle, ctx.lineWidth] = [color("--paper"), 3 * devicePixelRatio];
      const seen = moments
        .map(([at, words]) => [plot.valToPos(at, "x", true), words])
        .filter(([left]) => left > bbox.left && left < bbox.left + bbox.width);
      ctx.fillStyle = color("--bad");
      for (const [left] of seen) ctx.fillRect(left, bbox.top, 1.5, bbox.height);
      ctx.fillStyle = color("--ink");
      const told = plots.length && plots[0] !== plot ? [] : seen.filter(([, words]) => words);
      told.forEach(([left, words], line) => {
        const fits = left + 4 + ctx.measureText(words).width <= bbox.left + bbox.width;
        ctx.textAlign = fits ? "left" : "right";
        const where = [left + (fits ? 4 : -4), bbox.top + 14 * (line + 1) * devicePixelRatio];
        ctx.strokeText(words, ...where);
        ctx.fillText(words, ...where);
      });
      ctx.restore();
    };
    const [first, last] = [columns[0][0], columns[0][columns[0].length - 1]];
    const plots = [];
    const move = (from, to) => {
      const range = { min: Math.max(first, from), max: Math.min(last, to) };
      for (const plot of plots) {
        // Setting what is set already would call this again without end.
        if (plot.scales.x.min !== range.min || plot.scales.x.max !== range.max) plot.setScale("x", range);
      }
    };
    const axis = (extra) => ({ stroke: color("--soft"), grid: { stroke: color("--rule") }, size: 56, ...extra });
    const sync = uPlot.sync(fold.querySelector("summary").textContent);
    const hooks = { drawClear: [shade], draw: [mark], setScale: [(plot, key) => {
      if (key === "x" && plots.includes(plot)) move(plot.scales.x.min, plot.scales.x.max);
    }] };
    holder.replaceChildren();
    for (const one of units) {
      const mine = names.map((name, index) => index).filter((index) => index && unit(names[index]) === one);
      if (!mine.length) continue;
      const series = mine.map((index) => {
        const title = names[index].replace(/ (MB\/s|ms|s|%)$/, "");
        const look = looks[title] ?? index % 6;
        return { label: names[index], stroke: color(`--s${look}`), width: 2, dash: dashes[look], points: { show: false } };
      });
      plots.push(new uPlot({
        width: holder.clientWidth, height: 170, scales: { x: { time: false }, y: { range: fromZero } },
        cursor: { sync: { key: sync.key } }, hooks, series: [{ label: "s" }, ...series],
        axes: [axis({ label: "time, s", labelSize: 20, size: 36 }), axis({ label: one })],
      }, [columns[0], ...mine.map((index) => columns[index])], holder));
    }
    holder.tabIndex = 0;
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", "Zoomable drawing: plus and minus zoom, arrows move, 0 shows all");
    holder.addEventListener("keydown", (event) => {
      const { min, max } = plots[0].scales.x;
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
    // After the frame: a new size from within would be a change to observe.
    let width = holder.clientWidth;
    new ResizeObserver(() => requestAnimationFrame(() => {
      if (holder.clientWidth === width) return;
      width = holder.clientWidth;
      for (const plot of plots) plot.setSize({ width, height: 170 });
    })).observe(holder);
  };
  for (const fold of document.querySelectorAll("details.run")) {
    fold.addEventListener("toggle", () => {
      show(fold);
      offerCsv(fold);
    }, { once: true });
  }
})();
