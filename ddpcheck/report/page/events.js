"use strict";
// The timeline's data: a JSON object (packed_timeline.py writes it) whose `events` are columns of numbers, deflated.

async function inflated(text) {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser cannot unpack it (DecompressionStream)");
  const packed = atob(text), bytes = new Uint8Array(packed.length);
  for (let n = 0; n < packed.length; n++) bytes[n] = packed.charCodeAt(n);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers of so many bytes, whose first bytes lie together, then their second ones, and so on.
function numbers(bytes, at, count, width) {
  const found = new Uint32Array(count);
  for (let byte = 0; byte < width; byte++) {
    const from = at + byte * count, shift = 8 * byte;
    for (let n = 0; n < count; n++) found[n] |= bytes[from + n] << shift;
  }
  return found;
}

const BLOCK = 256;

function lane(bytes, place, given) {
  const it = { ...given };
  let at = place;
  const next = (column) => {
    const [count, width] = given.columns[column], found = numbers(bytes, at, count, width);
    at += count * width;
    return found;
  };
  it.kinds = Uint8Array.from(next(0));
  const count = (it.count = it.kinds.length);
  it.starts = next(1);
  for (let n = 1; n < count; n++) it.starts[n] += it.starts[n - 1];
  [it.lengths, it.labels, it.numbers] = [next(2), next(3), next(4)];
  const [which, counts, busy] = [next(5), next(6), next(7)];
  it.merges = new Map();
  which.forEach((event, n) => it.merges.set(event, { count: counts[n], busy: busy[n] }));
  it.waited = new Uint32Array(count); // how long, of a collective, and for which lane
  it.late = new Int16Array(count).fill(-1);
  // The latest end in each block of events: what began before a view may reach into it.
  it.ends = new Float64Array(Math.ceil(count / BLOCK));
  for (let n = 0; n < count; n++) {
    const end = it.starts[n] + it.lengths[n], block = (n / BLOCK) | 0;
    if (end > it.ends[block]) it.ends[block] = end;
  }
  return [it, at];
}

async function unpacked(data) {
  const bytes = await inflated(data.events);
  let place = 0;
  data.lanes = data.lanes.map((given) => {
    const [it, end] = lane(bytes, place, given);
    place = end;
    return it;
  });
  data.COLLECTIVE = data.kinds.indexOf("collective");
  data.WAIT = data.kinds.indexOf("wait");
  return data;
}

// Calls of one group with one number belong together: the last rank to come is whom the others waited for.
function matchCalls(data) {
  const calls = data.groups.map(() => data.lanes.map(() => null));
  data.lanes.forEach((it, l) => {
    const { kinds, merges, labels, numbers } = it;
    for (let n = 0; n < it.count; n++) {
      if (kinds[n] !== data.COLLECTIVE || (merges.size && merges.has(n))) continue;
      const group = data.labels[labels[n]][3];
      if (group < 0) continue;
      const mine = (calls[group][l] ||= []);
      if (!mine.length || numbers[n] > numbers[mine[mine.length - 1]]) mine.push(n);
    }
  });
  data.groups.forEach((members, group) => {
    const lists = members.map((l) => calls[group][l]), lanes = members.map((l) => data.lanes[l]);
    if (members.length < 2 || lists.some((list) => !list)) return;
    const places = new Uint32Array(members.length), here = new Uint32Array(members.length);
    for (const first of lists[0]) {
      const number = lanes[0].numbers[first];
      let all = true;
      for (let m = 0; m < members.length && all; m++) {
        const list = lists[m], { numbers } = lanes[m];
        let place = places[m];
        while (place < list.length && numbers[list[place]] < number) place++;
        places[m] = place;
        all = place < list.length && numbers[list[place]] === number;
        here[m] = list[place];
      }
      if (all && (data.pairs[group] || alike(data, lanes, here))) noteWaits(members, lanes, here);
    }
  });
  data.calls = calls;
}

// Whether it is one call, and not several that have one number.
function alike(data, lanes, here) {
  const label = lanes[0].labels[here[0]];
  for (let m = 1; m < lanes.length; m++) {
    const other = lanes[m].labels[here[m]];
    if (other !== label && data.labels[other][1] !== data.labels[label][1]) return false;
  }
  return true;
}

function noteWaits(members, lanes, here) {
  let last = 0;
  for (let m = 1; m < lanes.length; m++) {
    if (lanes[m].starts[here[m]] > lanes[last].starts[here[last]]) last = m;
  }
  const latest = lanes[last].starts[here[last]], least = lanes[last].lengths[here[last]];
  for (let m = 0; m < lanes.length; m++) {
    const event = here[m], waited = Math.min(latest - lanes[m].starts[event], lanes[m].lengths[event] - least);
    if (m !== last && waited > 0) {
      lanes[m].waited[event] = waited;
      lanes[m].late[event] = members[last];
    }
  }
}

// The events of all ranks that belong to one call: [lane, event], and the members that have none.
function matched(data, l, event) {
  const it = data.lanes[l], group = data.labels[it.labels[event]][3], number = it.numbers[event];
  if (!data.calls || group < 0 || it.merges.has(event)) return null;
  const found = [], lacking = [];
  for (const other of data.groups[group]) {
    const list = data.calls[group][other] || [], there = data.lanes[other];
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (there.numbers[list[middle]] < number) low = middle + 1;
      else high = middle;
    }
    if (low < list.length && there.numbers[list[low]] === number) found.push([other, list[low]]);
    else lacking.push(other);
  }
  return { group, number, found, lacking };
}

// The first event that begins at or after a time.
function firstFrom(it, time) {
  let low = 0, high = it.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (it.starts[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Every event of a lane that shows between two times, in order.
function eachBetween(it, from, to, see) {
  const first = firstFrom(it, from), last = firstFrom(it, to);
  for (let block = 0; block * BLOCK < first; block++) {
    if (it.ends[block] < from) continue;
    for (let n = block * BLOCK; n < Math.min(first, (block + 1) * BLOCK); n++) {
      if (it.starts[n] + it.lengths[n] >= from) see(n);
    }
  }
  for (let n = first; n < last; n++) see(n);
}
