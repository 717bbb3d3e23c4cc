"use strict";
// Moving through the timeline: wheel, drag, pinch, keys and buttons; what is under the pointer, in words.

class Timeline {
  constructor(data, root) {
    this.data = data;
    this.canvas = root.querySelector("canvas");
    this.pane = root.querySelector(".pane");
    this.about = root.querySelector(".about");
    this.spoken = root.querySelector(".spoken");
    this.painter = new Painter(data, this.canvas);
    this.lane = -1;
    this.picked = null; // [lane, event]
    this.whole();
    this.listen(root);
    this.resize();
  }

  // --- the view

  whole() {
    [this.from, this.to] = [0, Math.max(1, this.data.end)];
    this.paint();
  }

  // From the first forward on: before it, programs start and wait for each other.
  training() {
    let first = Infinity;
    for (const it of this.data.lanes) {
      const n = it.kinds.indexOf(this.data.kinds.indexOf("forward"));
      if (n >= 0) first = Math.min(first, it.starts[n]);
    }
    if (first < this.data.end) this.show(first - (this.data.end - first) * 0.02, this.data.end);
    else this.whole();
  }

  show(from, to) {
    const whole = Math.max(1, this.data.end), least = Math.min(whole, Math.max(20, whole / 1e7));
    const length = Math.max(least, Math.min(whole * 1.02, to - from));
    const middle = (from + to) / 2;
    this.from = Math.max(-whole * 0.01, Math.min(whole * 1.01 - length, middle - length / 2));
    this.to = this.from + length;
    this.paint();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  resize() {
    const width = this.pane.clientWidth, whole = layout(this.data, width).whole;
    this.height = Math.min(whole, Math.max(180, Math.round(window.innerHeight * 0.7)));
    this.pane.style.height = `${this.height}px`;
    this.canvas.style.height = `${this.height}px`;
    this.pane.querySelector(".tall").style.height = `${whole - this.height}px`;
    this.paint();
  }

  paint() {
    if (this.waiting || !this.painter) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.painter.paint({
        from: this.from, to: this.to, width: this.pane.clientWidth, height: this.height,
        scroll: this.pane.scrollTop, lane: this.lane,
        call: this.picked && matched(this.data, ...this.picked),
      });
    });
  }

  // --- what is where

  time(x) {
    return this.from + (x - this.painter.places.left) / this.painter.scale;
  }

  at(x, y) {
    const { places } = this.painter;
    if (y < TOP || x < places.left) return null;
    const l = Math.floor((y - TOP + this.pane.scrollTop) / places.height);
    const it = this.data.lanes[l];
    if (!it) return null;
    const [, high, under] = this.painter.rows(this.painter.y(l)), below = y >= under;
    const near = 3 / this.painter.scale, time = this.time(x);
    let best = -1, least = Infinity;
    if (firstFrom(it, this.to) - firstFrom(it, this.from) > FULL) return [l, -1];
    eachBetween(it, time - near, time + near, (n) => {
      const kind = it.kinds[n], low = kind === this.data.COLLECTIVE || kind === this.data.WAIT;
      if (low !== below && high) return;
      const apart = Math.max(0, it.starts[n] - time, time - it.starts[n] - it.lengths[n]) * 1e6 + it.lengths[n];
      if (apart < least) [best, least] = [n, apart];
    });
    return [l, best];
  }

  pick(l, event, speak = true) {
    this.lane = l;
    this.picked = event >= 0 ? [l, event] : null;
    this.describe(l, event, speak);
    this.paint();
  }

  describe(l, event, speak) {
    const { data } = this, it = data.lanes[l];
    const parts = [];
    const say = (tag, text, name = "") => {
      const one = document.createElement(tag);
      one.textContent = text;
      if (name) one.className = name;
      parts.push(one);
    };
    const unit = data.unit / 1e6;
    if (event < 0) {
      say("strong", `${it.title}`);
      say("span", ` ${it.count.toLocaleString("en")} events. Zoom in to see them one by one.`);
    } else {
      const [kind, text, place] = data.labels[it.labels[event]], merge = it.merges.get(event);
      say("i", "", `swatch kind-${data.kinds[kind]}`);
      say("strong", `${it.title}: ${merge ? `${merge.count.toLocaleString("en")} × ${data.titles[kind]}` : text}`);
      const took = merge ? `${span(merge.busy * unit)} in ${span(it.lengths[event] * unit)}` : span(it.lengths[event] * unit);
      const step = kind === data.kinds.indexOf("step") && !merge ? `, step ${it.numbers[event]}` : "";
      say("span", ` ${took}, at ${(it.starts[event] * unit).toFixed(6)} s${step}`);
      if (place >= 0) this.line(place, say);
      if (kind === data.COLLECTIVE) this.call(l, event, say, unit);
    }
    for (const [at, kind, text, place] of it.moments) {
      if (event >= 0 && kind !== "stuck" && Math.abs(at - it.starts[event]) * this.painter.scale > 6) continue;
      if (event < 0 && kind !== "raised" && kind !== "stuck") continue;
      say("p", `${span(at * unit)}: ${text}`, kind === "raised" || kind === "stuck" ? "bad" : "");
      if (place >= 0 && kind !== "stuck") this.line(place, say);
    }
    this.about.replaceChildren(...parts);
    if (speak) this.spoken.textContent = parts.map((one) => one.textContent).join(" ");
  }

  line(place, say) {
    const [file, line, name, text] = this.data.places[place];
    say("p", `${file}:${line} in ${name}`, "where");
    if (text) say("code", text);
  }

  call(l, event, say, unit) {
    const { data } = this, it = data.lanes[l], call = matched(data, l, event);
    if (!call) return;
    const titles = (lanes) => lanes.map((one) => data.lanes[one].title).join(", ");
    const alone = this.painter.alone.get(`${l} ${call.group} ${call.number}`);
    const own = data.labels[it.labels[event]][1];
    const others = data.pairs[call.group] ? [] : call.found.filter(([o, e]) => data.labels[data.lanes[o].labels[e]][1] !== own);
    const alike = call.found.length - others.length, all = call.found.length + call.lacking.length;
    say("p", `call ${call.number.toLocaleString("en")} of its group, made by ${alike} of ${all} ranks`);
    for (const [o, e] of others.slice(0, 8)) {
      const there = data.lanes[o];
      say("p", `${there.title} has made another call in its place: ${data.labels[there.labels[e]][1]}`, "bad");
    }
    if (alone && !others.length) say("p", `No such call on record: ${titles(alone[4])}`, "bad");
    if (it.waited[event]) {
      say("p", `It waited ${span(it.waited[event] * unit)} for ${data.lanes[it.late[event]].title}, which came last.`);
    } else if (call.found.length > 1 && !call.lacking.length) {
      const waits = call.found.map(([o, e]) => data.lanes[o].waited[e]).filter(Boolean);
      if (waits.length) say("p", `It came last: ${waits.length} of the others waited for it, up to ${span(Math.max(...waits) * unit)}.`);
    }
  }

  // --- findings

  finding(number, back = false) {
    const mark = this.data.marks.find(([finding]) => finding === number);
    if (!mark) return;
    const [, l, at] = mark, it = this.data.lanes[l];
    // So far that some steps before it and after it are seen, whichever of the two is nearer.
    const n = firstFrom(it, at), before = n >= 16 ? at - it.starts[n - 16] : Infinity;
    const after = n + 16 < it.count ? it.starts[n + 16] - at : Infinity, near = Math.min(before, after);
    const reach = Math.max(Number.isFinite(near) ? near * 1.2 : this.data.end / 10, this.data.end / 1e5, 10);
    this.show(at - reach, at + reach);
    this.lane = l;
    const tall = this.painter.places ? this.painter.places.height : 24;
    this.pane.scrollTop = Math.max(0, l * tall - this.height / 2);
    // What begins there, or is going on there.
    let best = -1;
    const apart = (e) => Math.abs(it.starts[e] - at);
    eachBetween(it, at - 1, at + 2, (e) => { if (best < 0 || apart(e) < apart(best)) best = e; });
    this.pick(l, best, !back);
  }

  step(by) {
    const order = [...new Set([...this.data.marks].sort((a, b) => a[2] - b[2]).map(([finding]) => finding))];
    if (!order.length) return;
    const now = order.indexOf(this.current ?? -1);
    this.current = order[(now + by + order.length) % order.length];
    this.finding(this.current);
  }

  // --- hands

  listen(root) {
    const { canvas, pane } = this;
    const where = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    pane.addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.resize()).observe(root);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.painter.readColours();
      this.paint();
    });
    canvas.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!sideways && !event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
      event.preventDefault();
      if (sideways) this.pan(event.deltaX / pane.clientWidth);
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 180), this.time(where(event)[0]));
    }, { passive: false });
    this.drag(canvas, where);
    canvas.addEventListener("dblclick", (event) => this.zoom(0.3, this.time(where(event)[0])));
    canvas.addEventListener("keydown", (event) => {
      const done = this.key(event);
      if (done) event.preventDefault();
    });
    for (const button of root.querySelectorAll("[data-do]")) {
      const does = { in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.4),
        right: () => this.pan(0.4), whole: () => this.whole(), training: () => this.training() };
      button.addEventListener("click", does[button.dataset.do]);
    }
  }

  drag(canvas, where) {
    const down = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      down.set(event.pointerId, where(event));
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = where(event), before = down.get(event.pointerId);
      if (!before) {
        const flag = this.flag(x, y), found = this.at(x, y);
        canvas.style.cursor = flag ? "pointer" : "grab";
        if (found && found[1] >= 0) this.pick(...found, false);
        return;
      }
      moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
      if (down.size === 2) {
        const [a, b] = [...down.values()].map(([one]) => one), middle = this.time((a + b) / 2);
        down.set(event.pointerId, [x, y]);
        const [c, d] = [...down.values()].map(([one]) => one);
        this.zoom(Math.max(10, Math.abs(a - b)) / Math.max(10, Math.abs(c - d)), middle);
        return;
      }
      this.pan((before[0] - x) / Math.max(1, this.pane.clientWidth - this.painter.places.left));
      this.pane.scrollTop += before[1] - y;
      down.set(event.pointerId, [x, y]);
    });
    const up = (event) => {
      const [x, y] = where(event);
      if (down.delete(event.pointerId) && moved < 5 && event.type === "pointerup") {
        const flag = this.flag(x, y), found = this.at(x, y);
        if (flag) this.open(flag.finding);
        else if (found) this.pick(...found);
      }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
  }

  flag(x, y) {
    return y < 24 && (this.painter.flags || []).find((one) => x >= one.x && x <= one.x + one.wide);
  }

  open(number) {
    const card = document.getElementById(`finding-${number + 1}`);
    if (!card) return;
    location.hash = card.id;
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "start" });
  }

  key(event) {
    if (event.altKey || event.metaKey || event.ctrlKey) return false;
    const does = {
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1.7), _: () => this.zoom(1.7),
      ArrowLeft: () => (event.shiftKey ? this.next(-1) : this.pan(-0.15)),
      ArrowRight: () => (event.shiftKey ? this.next(1) : this.pan(0.15)),
      ArrowUp: () => this.rank(-1), ArrowDown: () => this.rank(1),
      Home: () => this.whole(), 0: () => this.whole(), t: () => this.training(),
      n: () => this.step(1), p: () => this.step(-1),
      Enter: () => this.current !== undefined && this.open(this.current),
      Escape: () => { this.picked = null; this.lane = -1; this.about.textContent = ""; this.paint(); },
    }[event.key];
    if (does) does();
    return Boolean(does);
  }

  rank(by) {
    const l = Math.max(0, Math.min(this.data.lanes.length - 1, this.lane + by)), { height } = this.painter.places;
    const top = l * height, room = this.height - TOP - height;
    this.pane.scrollTop = Math.max(Math.min(this.pane.scrollTop, top), top - room);
    this.pick(l, -1);
  }

  // The next event of the lane, or the one before; from the middle of the view where none is picked.
  next(by) {
    const l = Math.max(0, this.lane), it = this.data.lanes[l];
    if (!it || !it.count) return;
    let n = this.picked && this.picked[0] === l ? this.picked[1] + by : firstFrom(it, (this.from + this.to) / 2);
    n = Math.max(0, Math.min(it.count - 1, n));
    const [start, end] = [it.starts[n], it.starts[n] + it.lengths[n]];
    if (start < this.from || end > this.to) {
      const half = Math.max((this.to - this.from) / 2, end - start);
      this.show(start - half, start + half);
    }
    this.pick(l, n);
  }
}

async function begin() {
  const root = document.getElementById("lanes"), given = document.getElementById("timeline-data");
  if (!root || !given) return;
  try {
    const data = await unpacked(JSON.parse(given.textContent));
    const timeline = (window.ddpcheckTimeline = new Timeline(data, root));
    if (root.dataset.begin === "training") timeline.training();
    root.classList.add("ready");
    // Who waited for whom takes another while: the lanes are there before.
    setTimeout(() => {
      matchCalls(data);
      binWaits(data);
      timeline.paint();
      root.classList.add("matched");
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("[data-finding]");
      if (!link) return;
      event.preventDefault();
      document.getElementById("timeline").scrollIntoView({ block: "start" });
      timeline.canvas.focus({ preventScroll: true });
      timeline.current = Number(link.dataset.finding);
      timeline.finding(timeline.current);
    });
  } catch (error) {
    root.querySelector(".about").textContent = `The timeline cannot be shown: ${error.message}. All else on this page is whole.`;
  }
}

begin();
