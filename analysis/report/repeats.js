// Iterations that were not simulated, since they go like the one before them: that one is drawn again, faintly, in a frame.

const REPEAT_STRIP = 18; // the height of the labels above the frames
const REPEAT_WIDTH = 3; // an iteration of fewer pixels is hatched

// skipped: [loop, first, last, begin, end]
function repeatOf([, first, last, time, until]) {
  const count = last - first + 1;
  return { time, until, count, period: (until - time) / count, lines: [`${count.toLocaleString('en')} more`, 'iterations', nanosecondsText(until - time, (until - time) / 100)] };
}

// Each iteration is wide enough to be seen, and none is shortened.
function isRepeatDrawn(axis, repeat, width) {
  return !axis.parts.some((part) => part.fold) && axis.x(repeat.time + repeat.period, width) - axis.x(repeat.time, width) > REPEAT_WIDTH;
}

// A lane's events of the iteration before, once for each repeated one; `paint(event)` is their colour and strength.
function drawRepeat(context, axis, lane, repeat, [y, height, width], paint) {
  if (!isRepeatDrawn(axis, repeat, width)) return;
  const [from, to] = [axis.time(axis.from), axis.time(axis.to)];
  const model = [];
  for (let n = firstEnding(lane, repeat.time - repeat.period); n < lane.length && lane[n][3] < repeat.time; n++) {
    model.push([Math.max(lane[n][3], repeat.time - repeat.period), Math.min(lane[n][4], repeat.time), ...paint(lane[n])]);
  }
  const first = Math.max(1, Math.floor((from - repeat.time) / repeat.period) + 1);
  let last = -1;
  for (let n = first; n <= repeat.count && repeat.time + (n - 1) * repeat.period < to; n++) {
    for (const [begin, end, shade, strength] of model) {
      const right = axis.x(end + n * repeat.period, width);
      if (right < last + 0.4) continue; // too thin to be seen beside the one before
      const left = axis.x(begin + n * repeat.period, width);
      context.fillStyle = shade;
      context.globalAlpha = strength;
      context.fillRect(left, y + 1, Math.max(right - left - (right - left > 3 ? 1 : 0), 0.6), height - 2);
      last = right;
    }
  }
  context.globalAlpha = 1;
}

function drawRepeatFrame(context, axis, repeat, width, high) {
  const [left, right] = [Math.max(GUTTER, axis.x(repeat.time, width)), Math.min(width, axis.x(repeat.until, width))];
  if (right <= left) return;
  context.strokeStyle = colour('quiet');
  context.strokeRect(left + 0.5, REPEAT_STRIP - 0.5, right - left - 1, high - REPEAT_STRIP);
  const [more, what, time] = repeat.lines;
  const text = [`${more} ${what}, ${time}`, `${more} ${what}`, more].find((t) => context.measureText(t).width < right - left - 4);
  if (!text) return;
  context.fillStyle = colour('ink');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(text, (left + right) / 2, REPEAT_STRIP / 2);
}

// For a time in a repeated iteration the time in the one that was simulated, and the repeat; else the time and null.
function simulatedTime(repeats, time) {
  const repeat = repeats.find((r) => r.time < time && time < r.until);
  return repeat ? [repeat.time - repeat.period + ((time - repeat.time) % repeat.period), repeat] : [time, null];
}
