"use strict";
// The lanes on a canvas: one by one where there is room, else how much of each moment went into what.

const TOP = 44; // the axis and the findings' numbers
const BINS = 4096;
const FULL = 2500; // events of a lane that are drawn one by one
const APART = 60; // calls in view up to which all of them are joined by lines
const UPPER = ["forward", "evaluation", "backward", "step", "data", "save", "load"];

function layout(data, width) {
  const many = data.lanes.length;
  const height = many <= 4 ? 56 : many <= 8 ? 46 : many <= 16 ? 34 : many <= 32 ? 24 : 18;
  return { left: width < 600 ? 46 : 92, height, top: TOP, whole: TOP + many * height + 4 };
}

// For each lane and kind, how long it went on in each of many equal parts of the run; and how long it waited.
function binned(data) {
  const row = data.kinds.length + 1, width = Math.max(1, data.end / BINS);
  for (const it of data.lanes) {
    it.bins = new Float32Array(BINS * row);
    for (let n = 0; n < it.count; n++) {
      const merge = it.merges.size ? it.merges.get(n) : undefined, length = it.lengths[n];
      spread(it.bins, it.kinds[n], it.starts[n], length, merge && length ? merge.busy / length : 1, width, row);
    }
  }
}

function binWaits(data) {
  const row = data.kinds.length + 1, width = Math.max(1, data.end / BINS);
  for (const it of data.lanes) {
    for (let n = 0; n < it.count; n++) {
      if (it.waited[n]) spread(it.bins, row - 1, it.starts[n], it.waited[n], 1, width, row);
    }
  }
}

function spread(bins, kind, start, length, share, width, row) {
  const end = start + length;
  let bin = Math.min(BINS - 1, Math.floor(start / width));
  const last = Math.min(BINS - 1, Math.floor(end / width));
  if (bin === last) {
    bins[bin * row + kind] += length * share;
    return;
  }
  for (; bin <= last; bin++) {
    const from = Math.max(start, bin * width), to = Math.min(end, (bin + 1) * width);
    bins[bin * row + kind] += Math.max(0, to - from) * share;
  }
}

class Painter {
  constructor(data, canvas) {
    [this.data, this.canvas, this.context] = [data, canvas, canvas.getContext("2d")];
    this.upper = UPPER.map((name) => data.kinds.indexOf(name));
    this.alone = new Map(data.alone.map((one) => [`${one[0]} ${one[2]} ${one[3]}`, one]));
    binned(data);
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = this.data.kinds.map((name) => colour(`kind-${name}`));
    for (const name of ["ink", "dim", "line", "panel", "error", "warning", "stripe", "accent", "waited"]) {
      this[name] = colour(name);
    }
    this.hatch = this.hatched();
  }

  hatched() {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const c = tile.getContext("2d");
    c.strokeStyle = this.waited;
    c.lineWidth = 1.4;
    c.beginPath();
    for (const x of [-6, 0, 6]) {
      c.moveTo(x, 6);
      c.lineTo(x + 6, 0);
    }
    c.stroke();
    return this.context.createPattern(tile, "repeat");
  }

  // view: { from, to, width, height, scroll, lane, picked, call }
  paint(view) {
    const ratio = window.devicePixelRatio || 1, c = this.context;
    this.canvas.width = Math.round(view.width * ratio);
    this.canvas.height = Math.round(view.height * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.view = view;
    this.places = layout(this.data, view.width);
    this.scale = (view.width - this.places.left) / Math.max(1, view.to - view.from);
    c.fillStyle = this.panel;
    c.fillRect(0, 0, view.width, view.height);
    c.save();
    c.beginPath();
    c.rect(this.places.left, TOP, view.width, view.height - TOP);
    c.clip();
    this.data.lanes.forEach((it, l) => this.lane(it, l));
    this.calls();
    this.marks();
    c.restore();
    this.titles();
    this.axis();
  }

  x(time) {
    return this.places.left + (time - this.view.from) * this.scale;
  }

  y(l) {
    return TOP + l * this.places.height - this.view.scroll;
  }

  lane(it, l) {
    const y = this.y(l), { height } = this.places, c = this.context, view = this.view;
    if (y + height < TOP || y > view.height) return;
    if (l % 2) {
      c.fillStyle = this.stripe;
      c.fillRect(0, y, view.width, height);
    }
    if (view.lane === l) {
      c.fillStyle = this.accent;
      c.globalAlpha = 0.1;
      c.fillRect(0, y, view.width, height);
      c.globalAlpha = 1;
    }
    it.passes.forEach(([start, end, , trains], n) => {
      if (end < view.from || start > view.to) return;
      c.globalAlpha = n % 2 ? 0.75 : 0.35;
      c.fillStyle = trains ? this.ink : this.colours[1];
      c.fillRect(this.x(start), y + 1, Math.max(1, (end - start) * this.scale - 1), 2);
      c.globalAlpha = 1;
    });
    const shown = firstFrom(it, view.to) - firstFrom(it, view.from);
    if (shown > FULL) this.overview(it, y);
    else this.events(it, l, y);
    for (const moment of it.moments) this.moment(moment, y);
    if (it.end < view.to) {
      c.fillStyle = this.line;
      c.globalAlpha = 0.5;
      c.fillRect(this.x(it.end), y + 4, view.width, height - 8);
      c.globalAlpha = 1;
    }
  }

  rows(y) {
    const inner = this.places.height - 8, upper = Math.round(inner * 0.62);
    return [y + 5, upper, y + 5 + upper + 1, inner - upper - 1];
  }

  overview(it, y) {
    const data = this.data, view = this.view, row = data.kinds.length + 1, width = data.end / BINS;
    const [top, high, under, low] = this.rows(y), c = this.context;
    const first = Math.max(0, Math.floor(view.from / width)), last = Math.min(BINS - 1, Math.ceil(view.to / width));
    const step = Math.max(1, Math.round(1 / (width * this.scale)));
    const sums = new Float64Array(row), tall = new Float64Array(row), before = new Float64Array(row).fill(-1);
    let from = 0;
    // Columns that look alike are one rectangle of each colour.
    const draw = (to) => {
      let base = top + high;
      for (const k of this.upper) {
        if (!before[k]) continue;
        c.fillStyle = this.colours[k];
        c.fillRect(from, base - before[k], to - from, before[k]);
        base -= before[k];
      }
      if (before[data.COLLECTIVE]) {
        c.fillStyle = this.colours[data.COLLECTIVE];
        c.fillRect(from, under, to - from, before[data.COLLECTIVE]);
      }
      if (before[row - 1]) {
        c.fillStyle = this.waited;
        c.fillRect(from, under + before[data.COLLECTIVE], to - from, before[row - 1]);
      }
    };
    for (let bin = first; bin <= last; bin += step) {
      sums.fill(0);
      for (let b = bin; b < Math.min(bin + step, last + 1); b++) {
        for (let k = 0; k < row; k++) sums[k] += it.bins[b * row + k];
      }
      const x = this.x(bin * width), all = step * width;
      let room = high;
      for (const k of this.upper) {
        const file = sums[k] && (data.kinds[k] === "save" || data.kinds[k] === "load");
        tall[k] = Math.min(room, Math.round(2 * Math.max(high * Math.min(1, sums[k] / all), file ? high * 0.25 : 0)) / 2);
        room -= tall[k];
      }
      const busy = Math.min(1, (sums[data.COLLECTIVE] + sums[data.WAIT]) / all);
      tall[row - 1] = Math.round(2 * low * Math.min(busy, sums[row - 1] / all)) / 2;
      tall[data.COLLECTIVE] = Math.max(0, Math.round(2 * low * busy) / 2 - tall[row - 1]);
      if (tall.every((one, k) => one === before[k])) continue;
      if (before[0] >= 0) draw(x);
      before.set(tall);
      from = x;
    }
    if (before[0] >= 0) draw(this.x((last + 1) * width));
  }

  events(it, l, y) {
    const [top, high, under, low] = this.rows(y), c = this.context, data = this.data;
    eachBetween(it, this.view.from, this.view.to, (n) => {
      const kind = it.kinds[n], merge = it.merges.get(n);
      const below = kind === data.COLLECTIVE || kind === data.WAIT;
      const x = this.x(it.starts[n]), wide = Math.max(1, it.lengths[n] * this.scale);
      const [at, tall] = below ? [under, low] : [top, high];
      const part = merge && it.lengths[n] ? Math.max(0.15, Math.min(1, merge.busy / it.lengths[n])) : 1;
      const gap = wide > 4 ? 0.6 : 0;
      c.fillStyle = this.colours[kind];
      c.fillRect(x, at + tall * (1 - part), wide - gap, tall * part);
      if (it.waited[n] && it.waited[n] * this.scale > 1.5) {
        c.fillStyle = this.panel;
        c.fillRect(x, at, it.waited[n] * this.scale, tall);
        c.fillStyle = this.hatch;
        c.fillRect(x, at, it.waited[n] * this.scale, tall);
      }
      if (below && this.alone.has(`${l} ${data.labels[it.labels[n]][3]} ${it.numbers[n]}`)) {
        c.strokeStyle = this.error;
        c.lineWidth = 2;
        c.strokeRect(x + 1, at + 1, Math.max(3, wide - 2), tall - 2);
      }
      if (wide > 64 && tall > 11 && !merge) this.word(data.labels[it.labels[n]][1], x, at, wide, tall);
    });
  }

  word(text, x, y, wide, tall) {
    const c = this.context, from = Math.max(x, this.places.left);
    c.save();
    c.beginPath();
    c.rect(from, y, x + wide - from - 4, tall);
    c.clip();
    c.fillStyle = "#fff";
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.fillText(text, from + 5, y + tall / 2 + 0.5);
    c.restore();
  }

  moment([at, kind], y) {
    if (kind === "loaded" || at < this.view.from || at > this.view.to) return;
    const c = this.context, x = Math.round(this.x(at)) + 0.5, bad = kind === "raised" || kind === "stuck";
    c.strokeStyle = bad ? this.error : this.dim;
    c.lineWidth = bad ? 2 : 1;
    c.beginPath();
    c.moveTo(x, y + 3);
    c.lineTo(x, y + this.places.height - 3);
    c.stroke();
  }

  // The calls that belong together: all of them where there is room between, and those of the picked one.
  calls() {
    const { call } = this.view, data = this.data, shown = new Map();
    data.lanes.forEach((it, l) => {
      if (shown.size > APART || firstFrom(it, this.view.to) - firstFrom(it, this.view.from) > 10 * APART) return;
      eachBetween(it, this.view.from, this.view.to, (n) => {
        if (it.kinds[n] !== data.COLLECTIVE || shown.size > APART || !data.calls) return;
        const key = `${data.labels[it.labels[n]][3]} ${it.numbers[n]}`;
        if (!shown.has(key)) shown.set(key, matched(data, l, n));
      });
    });
    if (shown.size <= APART) for (const one of shown.values()) if (one) this.joined(one, 0.3);
    if (call) this.joined(call, 1);
  }

  joined(call, strength) {
    const c = this.context;
    if (call.found.length < 2) return;
    const ends = call.found.map(([l, event]) => {
      const it = this.data.lanes[l], [, , under, low] = this.rows(this.y(l));
      return [this.x(it.starts[event]), under + low / 2];
    });
    c.globalAlpha = strength;
    c.strokeStyle = call.lacking.length ? this.error : this.ink;
    c.lineWidth = strength < 1 ? 1 : 1.4;
    c.beginPath();
    ends.forEach(([x, y], n) => (n ? c.lineTo(x, y) : c.moveTo(x, y)));
    c.stroke();
    c.fillStyle = c.strokeStyle;
    for (const [x, y] of ends) {
      c.beginPath();
      c.arc(x, y, strength < 1 ? 1.5 : 3, 0, 7);
      c.fill();
    }
    c.globalAlpha = 1;
  }

  marks() {
    const c = this.context;
    for (const [finding, l, at] of this.data.marks) {
      const x = Math.round(this.x(at)) + 0.5, y = this.y(l);
      if (x < this.places.left - 2 || x > this.view.width + 2) continue;
      c.strokeStyle = this.severity(finding);
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(x, Math.max(TOP, y + 1));
      c.lineTo(x, y + this.places.height - 1);
      c.stroke();
    }
  }

  severity(finding) {
    return this.data.severities[finding] === "warning" ? this.warning : this.error;
  }

  titles() {
    const c = this.context, { left, height } = this.places;
    c.fillStyle = this.panel;
    c.fillRect(0, TOP, left, this.view.height - TOP);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    this.data.lanes.forEach((it, l) => {
      const y = this.y(l);
      if (y + height < TOP || y > this.view.height) return;
      c.fillStyle = this.view.lane === l ? this.accent : this.ink;
      const text = left < 60 ? String(it.rank) : it.title;
      c.fillText(text, 6, Math.max(TOP + 8, y + height / 2), left - 10);
    });
    c.fillStyle = this.panel;
    c.fillRect(0, 0, this.view.width, TOP);
  }

  axis() {
    const c = this.context, { from, to, width } = this.view, { left } = this.places;
    const unit = this.data.unit / 1e6, wanted = ((to - from) * unit) / Math.max(2, (width - left) / 110);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "alphabetic";
    c.lineWidth = 1;
    for (let n = Math.ceil((from * unit) / step); n * step <= to * unit; n++) {
      const x = Math.round(this.x((n * step) / unit)) + 0.5;
      c.strokeStyle = this.line;
      c.beginPath();
      c.moveTo(x, TOP - 6);
      c.lineTo(x, TOP);
      c.stroke();
      c.fillStyle = this.dim;
      if (x < width - 40) c.fillText(seconds(n * step, step), x + 3, TOP - 4);
    }
    c.strokeStyle = this.line;
    c.beginPath();
    c.moveTo(0, TOP - 0.5);
    c.lineTo(width, TOP - 0.5);
    c.stroke();
    this.flags = [];
    let beyond = -Infinity;
    const firsts = new Map();
    for (const [finding, l, at] of this.data.marks) {
      if (!firsts.has(finding) || at < firsts.get(finding)[1]) firsts.set(finding, [l, at]);
    }
    for (const [finding, [l, at]] of [...firsts].sort((a, b) => a[1][1] - b[1][1])) {
      if (at < from || at > to) continue;
      const text = String(finding + 1), wide = 14 + 7 * (text.length - 1);
      const x = Math.max(this.x(at) - wide / 2, beyond);
      beyond = x + wide + 2;
      c.fillStyle = this.severity(finding);
      c.beginPath();
      c.roundRect(x, 4, wide, 18, 4);
      c.fill();
      c.fillStyle = this.panel;
      c.font = "bold 11px system-ui, sans-serif";
      c.fillText(text, x + 4, 17);
      this.flags.push({ finding, lane: l, at, x, wide });
    }
  }
}

// A time in seconds, to as many places as its distance from the next one asks for.
function seconds(value, step) {
  const places = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step))));
  if (value >= 3600 && step >= 1) {
    const [h, m, s] = [value / 3600, (value / 60) % 60, value % 60].map(Math.floor);
    return `${h}:${String(m).padStart(2, "0")}:${String(s).padStart(2, "0")}`;
  }
  return `${value.toFixed(places)} s`;
}

function span(value) {
  if (value >= 1) return `${value.toFixed(2)} s`;
  if (value >= 1e-3) return `${(value * 1e3).toFixed(value >= 0.1 ? 0 : 2)} ms`;
  return `${Math.round(value * 1e6)} µs`;
}
