/* The attention viewer: one query patch, and where every head of every block looks from there.
 *
 * `openPage` starts it. Nothing is loaded from anywhere: the maps come as deflated bytes, which viewer.py describes.
 *
 * State is {show, block, head, query}: positions in the tables, from 0. A query is a token (below `tokens.length`) or,
 * after those, a patch, row by row. Rollout is one more map, behind those of all heads.
 */

const SHOWS = [["heads", "All heads"], ["block", "Block"], ["head", "Head"], ["rollout", "Rollout"]];
const HELP = [["← ↑ ↓ →", "patch, or map"], ["B", "block"], ["H", "head"], ["V", "view"], ["C", "token"],
  ["M", "map on picture"], ["S", "scale"], ["Enter", "hold"]];

/** Make an element: attributes by name, listeners as on…, then its children. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Undo zlib's deflate; all browsers can since 2023. */
async function inflate(bytes) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser cannot unpack the maps. Chrome 80, Firefox 113, Safari 16.4 and newer can.");
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

/** Name → typed array, as the list of arrays in the metadata says. */
function arraysOf(buffer, listed) {
  const arrays = {};
  let start = 0;
  for (const { name, type, shape } of listed) {
    const kind = type === "float32" ? Float32Array : Uint8Array;
    arrays[name] = new kind(buffer, start, shape.reduce((a, b) => a * b, 1));
    start += arrays[name].byteLength;
  }
  return arrays;
}

const percent = (share) => `${share > 0.0995 ? Math.round(100 * share) : Number((100 * share).toPrecision(2))} %`;
const pixels = (distance) => `${distance < 10 ? distance.toFixed(1) : Math.round(distance)} px`;

class AttentionViewer {
  constructor(root, meta, arrays, image) {
    Object.assign(this, { root, meta, arrays, image });
    [this.rows, this.cols] = meta.grid;
    this.patches = this.rows * this.cols;
    this.queries = meta.tokens.length + this.patches;
    const middle = Math.floor(this.rows / 2) * this.cols + Math.floor(this.cols / 2);
    const query = meta.show === "rollout" ? 0 : meta.tokens.length + middle;
    this.state = { show: meta.show, block: 0, head: 0, query };
    this.held = false; // a held patch does not follow the pointer
    this.overlay = true; // the chosen map lies on the picture
    this.shared = false; // one colour scale for all maps shown, in place of each its own
    this.palette = new Uint32Array(256);
    const rgba = new Uint8Array(this.palette.buffer);
    for (let level = 0; level < 256; level++) {
      rgba.set([...arrays.colours.subarray(3 * level, 3 * level + 3), 255], 4 * level);
    }
    this.small = element("canvas", { width: this.cols, height: this.rows }); // the chosen map, one pixel a patch
    this.build();
    this.layOut();
    new ResizeObserver(() => this.drawPicture()).observe(this.canvas);
  }

  // ---- what is selected -------------------------------------------------------------------------------------------

  /** Change any of show, block, head, query; what lies outside the tables is drawn back to their edge. */
  select(change) {
    const next = { ...this.state, ...change };
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    next.block = within(next.block, this.meta.blocks.length);
    next.head = within(next.head, this.meta.heads);
    next.query = within(next.query, this.queries);
    const before = this.state;
    if (Object.keys(next).every((key) => next[key] === before[key])) return;
    this.state = next;
    if (next.show !== before.show) this.layOut();
    else this.draw();
  }

  /** The map on the picture: its place in the tables. */
  chosen() {
    const { show, block, head } = this.state;
    return show === "rollout" ? this.meta.blocks.length * this.meta.heads : this.mapOf(block, head);
  }

  mapOf(block, head) { return block * this.meta.heads + head; }

  peak(map) { return this.arrays.peak[map * this.queries + this.state.query]; }

  distance(map) { return this.arrays.distance[map * this.queries + this.state.query]; }

  /** Row and column of the query patch, or null when the query is a token. */
  place() {
    const patch = this.state.query - this.meta.tokens.length;
    return patch < 0 ? null : [Math.floor(patch / this.cols), patch % this.cols];
  }

  moveQuery(down, right) {
    const [row, col] = this.place() ?? [0, 0];
    const to = this.place() ? [row + down, col + right] : [0, 0]; // from a token the first key leads to the corner
    if (to[0] < 0 || to[1] < 0 || to[0] >= this.rows || to[1] >= this.cols) return;
    this.select({ query: this.meta.tokens.length + to[0] * this.cols + to[1] });
  }

  cycle(name, count, step) { this.select({ [name]: (this.state[name] + step + count) % count }); }

  // ---- names ------------------------------------------------------------------------------------------------------

  nameOf(map) {
    if (map === this.meta.blocks.length * this.meta.heads) return "Rollout through all blocks";
    return `Block ${this.meta.blocks[Math.floor(map / this.meta.heads)] + 1}, head ${map % this.meta.heads + 1}`;
  }

  queryName() {
    const place = this.place();
    return place ? `row ${place[0] + 1}, column ${place[1] + 1}` : this.meta.tokens[this.state.query];
  }

  distanceText(map) {
    const distance = this.distance(map);
    return Number.isNaN(distance) ? "no distance, a token has no place" : `mean distance ${pixels(distance)}`;
  }

  /** "block 3, head 2, patch row 4 column 5, mean distance 61 px": for those who listen. */
  spoken() {
    const place = this.place();
    const from = place ? `patch row ${place[0] + 1} column ${place[1] + 1}` : this.queryName();
    const name = this.nameOf(this.chosen());
    return `${name[0].toLowerCase()}${name.slice(1)}, ${from}, ${this.distanceText(this.chosen())}`;
  }

  // ---- the page ---------------------------------------------------------------------------------------------------

  build() {
    const group = (label, ...children) =>
      element("div", { role: "group", "aria-label": label, class: "buttons" }, ...children);
    const choice = (name, numbers) => element("select", {
      "aria-label": name, onchange: ({ target }) => this.select({ [name]: Number(target.value) }) },
    ...numbers.map((number, k) => element("option", { value: k }, `${number + 1}`)));
    this.blockChoice = choice("block", this.meta.blocks);
    this.headChoice = choice("head", [...Array(this.meta.heads).keys()]);
    this.showButtons = SHOWS.map(([show, label]) =>
      element("button", { type: "button", onclick: () => this.select({ show }) }, label));
    this.tokenButtons = this.meta.tokens.map((name, query) =>
      element("button", { type: "button", onclick: () => this.select({ query }) }, name));
    this.canvas = element("canvas", { tabindex: 0, role: "application", class: "picture", "aria-label":
      `Picture of ${this.rows} by ${this.cols} patches; arrow keys move the query patch`,
      style: `aspect-ratio: ${this.meta.size[1]} / ${this.meta.size[0]}` });
    this.canvas.addEventListener("pointermove", (event) => { if (!this.held) this.point(event); });
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.readout = element("div", { class: "readout" });
    this.scale = element("div", { class: "scale" });
    this.overlayBox = this.checkbox((on) => { this.overlay = on; });
    this.overlayBox.checked = true;
    this.sharedBox = this.checkbox((on) => { this.shared = on; });
    this.maps = element("div", { class: "maps", role: "group" });
    this.live = element("div", { class: "unseen", "aria-live": "polite" });
    this.root.classList.add("vitlab-viewer");
    this.root.replaceChildren(
      element("div", { class: "controls" },
        group("View", ...this.showButtons),
        group("Map", element("label", {}, "block ", this.blockChoice), element("label", {}, "head ", this.headChoice)),
        group("Query token", "from ", ...this.tokenButtons),
        group("Drawing", element("label", {}, this.overlayBox, " map on the picture"),
          element("label", {}, this.sharedBox, " one scale for all maps"))),
      element("div", { class: "body" }, this.canvas, element("div", { class: "right" },
        element("div", { class: "beside" }, this.readout, this.scale), this.maps)),
      element("p", { class: "help" }, "Point at a patch or tap it; click to hold it. Keys: ",
        ...HELP.flatMap(([key, what]) => [element("kbd", {}, key), ` ${what} `]), "(with Shift backwards)"),
      this.live);
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  checkbox(set) {
    return element("input", { type: "checkbox", onchange: ({ target }) => { set(target.checked); this.draw(); } });
  }

  /** The maps of this view as buttons: blocks across and heads down, the heads of a block, or one map. */
  layOut() {
    const focused = this.maps.contains(document.activeElement);
    const { show } = this.state;
    const { blocks, heads } = this.meta;
    const ofBlock = (block) => [...Array(heads).keys()].map((head) => [block, head]);
    const all = show === "heads" ? [...blocks.keys()].flatMap(ofBlock)
      : show === "block" ? ofBlock(null) : [[null, null]]; // null: whichever is chosen
    this.cells = all.map(([block, head]) => this.cell(block, head));
    const labels = [];
    if (show === "heads") {
      labels.push(element("span", { class: "corner" }, "block"));
      const label = (row, column, text) =>
        labels.push(element("span", { style: `grid-area: ${row} / ${column}` }, text));
      blocks.forEach((block, k) => label(1, k + 2, `${block + 1}`));
      for (let head = 0; head < heads; head++) label(head + 2, 1, `head ${head + 1}`);
    }
    this.maps.className = `maps ${show}`;
    this.maps.style.setProperty("--blocks", blocks.length);
    this.maps.setAttribute("aria-label", show === "heads" ? "Maps of all heads: blocks across, heads down"
      : show === "block" ? "Maps of the block's heads" : "The chosen map");
    this.maps.replaceChildren(...labels, ...this.cells.map((cell) => cell.button));
    this.draw();
    if (focused) this.cells.find((cell) => cell.button.tabIndex === 0)?.button.focus();
  }

  cell(block, head) {
    const canvas = element("canvas", { width: this.cols, height: this.rows });
    const note = element("span", { class: "note" });
    const shape = `aspect-ratio: ${this.meta.size[1]} / ${this.meta.size[0]}`;
    const button = element("button", { type: "button", class: "map", onclick: () => this.select({
      block: block ?? this.state.block, head: head ?? this.state.head }) },
    element("span", { class: "sheet", style: shape }, canvas, element("i")), note);
    if (block !== null) button.style.gridArea = `${head + 2} / ${block + 2}`;
    const context = canvas.getContext("2d");
    const sheet = context.createImageData(this.cols, this.rows);
    return { block, head, button, note, context, sheet, pixels: new Uint32Array(sheet.data.buffer) };
  }

  mapOfCell({ block, head }) {
    return head === null ? this.chosen() : this.mapOf(block ?? this.state.block, head);
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------

  /** Everything that depends on the selection; about a millisecond for 36 maps. */
  draw() {
    const maps = this.cells.map((cell) => this.mapOfCell(cell));
    const chosen = this.chosen();
    const peaks = [...maps, chosen].map((map) => this.peak(map));
    this.top = this.shared && !this.linear() ? Math.max(...peaks) : null; // of the scale, where maps share one
    this.cells.forEach((cell, k) => {
      this.paint(cell.pixels, this.levels(maps[k]));
      cell.context.putImageData(cell.sheet, 0, 0);
      const picked = maps[k] === chosen;
      cell.button.setAttribute("aria-pressed", picked);
      cell.button.tabIndex = picked ? 0 : -1;
      if (this.state.show === "block") cell.note.textContent = this.noteOf(maps[k]);
    });
    const place = this.place();
    this.maps.classList.toggle("no-patch", !place);
    if (place) {
      const [row, col] = place;
      const { style } = this.maps;
      style.setProperty("--top", `${100 * row / this.rows}%`);
      style.setProperty("--left", `${100 * col / this.cols}%`);
      style.setProperty("--tall", `${100 / this.rows}%`);
      style.setProperty("--wide", `${100 / this.cols}%`);
    }
    this.drawPicture();
    this.write();
    clearTimeout(this.announcing); // what is spoken waits until the pointer rests
    this.announcing = setTimeout(() => this.announce(), 250);
  }

  /** Each patch's place on the colour scale, 0…255. Bytes are square roots already, as the scale of heads is. */
  levels(map) {
    const from = (map * this.queries + this.state.query) * this.patches;
    const roots = this.arrays.code.subarray(from, from + this.patches);
    if (this.linear()) return roots.map((root) => Math.round(root * root / 255));
    if (this.top === null) return roots;
    const factor = Math.sqrt(this.peak(map) / (this.top || 1)); // one scale for all maps
    return roots.map((root) => Math.round(root * factor));
  }

  /** Rollout is drawn as in the paper's Fig. 6, in proportion to its maximum. */
  linear() { return this.state.show === "rollout"; }

  /** One pixel a patch. */
  paint(pixels, levels) {
    for (let patch = 0; patch < this.patches; patch++) pixels[patch] = this.palette[levels[patch]];
  }

  drawPicture() {
    const { canvas, image } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (width === 0) return; // not on the page yet; the observer calls again
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = image.naturalWidth >= 128;
    context.drawImage(image, 0, 0, width, height);
    if (this.overlay) this.drawOverlay(context, width, height);
    const place = this.place();
    if (!place) return;
    const box = [place[1] * width / this.cols, place[0] * height / this.rows, width / this.cols, height / this.rows];
    for (const [colour, thickness] of [["#fff", 5], ["#d55e00", this.held ? 4 : 2.5]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: thickness * ratio });
      context.strokeRect(...box);
    }
  }

  /** The picture goes grey and dim; the chosen map lies over it, the more opaque the stronger the attention. */
  drawOverlay(context, width, height) {
    for (const [operation, colour] of [["saturation", "#000"], ["multiply", "#aaa"]]) {
      Object.assign(context, { globalCompositeOperation: operation, fillStyle: colour });
      context.fillRect(0, 0, width, height);
    }
    context.globalCompositeOperation = "source-over";
    const small = this.small.getContext("2d");
    const sheet = small.createImageData(this.cols, this.rows);
    const pixels = new Uint32Array(sheet.data.buffer);
    const levels = this.levels(this.chosen());
    this.paint(pixels, levels);
    for (let patch = 0; patch < this.patches; patch++) sheet.data[4 * patch + 3] = 25 + 0.85 * levels[patch];
    small.putImageData(sheet, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.small, 0, 0, width, height);
  }

  noteOf(map) {
    const distance = this.distance(map);
    const px = Number.isNaN(distance) ? "" : pixels(distance);
    return `head ${map % this.meta.heads + 1}${px && `: ${px}`}`;
  }

  /** The words next to the picture, the numbers of the colour bar, and which buttons are down. */
  write() {
    this.writeReadout(this.chosen());
    this.writeScale(this.top ?? this.peak(this.chosen()));
    this.blockChoice.value = this.state.block;
    this.headChoice.value = this.state.head;
    this.blockChoice.disabled = this.headChoice.disabled = this.linear();
    this.showButtons.forEach((button, k) => button.setAttribute("aria-pressed", SHOWS[k][0] === this.state.show));
    this.tokenButtons.forEach((button, query) => button.setAttribute("aria-pressed", query === this.state.query));
  }

  writeReadout(map) {
    const line = (...parts) => element("p", {}, ...parts);
    const strong = (text) => element("strong", {}, text);
    const onPrefix = this.arrays.on_prefix[map * this.queries + this.state.query];
    const over = `${pixels(this.arrays.head_distance[map])} from all patches`;
    this.readout.replaceChildren(
      line(strong(this.nameOf(map)), ` from ${this.queryName()}${this.held ? " (held)" : ""}`),
      this.place() ? line("Mean distance: ", strong(pixels(this.distance(map))), `; ${over}`)
        : line(`Mean distance: ${over}`),
      line(`Strongest patch: ${percent(this.peak(map))}; an even share: ${percent((1 - onPrefix) / this.patches)}`),
      ...(this.meta.prefix ? [line(`On ${this.meta.prefix}: ${percent(onPrefix)}`)] : []));
  }

  writeScale(top) {
    if (!this.scale.firstChild) {
      const stops = [...Array(17).keys()].map((k) => {
        const level = 3 * Math.round(k * 255 / 16);
        return `rgb(${[...this.arrays.colours.subarray(level, level + 3)]})`;
      });
      this.ticks = [0, 0.25, 0.5, 0.75, 1].map((place) => [place, element("span")]);
      this.caption = element("p", { class: "caption" });
      this.scale.append(element("div", { class: "bar", style: `background: linear-gradient(to right, ${stops})` }),
        element("div", { class: "ticks" }, ...this.ticks.map(([, tick]) => tick)), this.caption);
    }
    const power = this.linear() ? 1 : 2;
    for (const [place, tick] of this.ticks) tick.textContent = percent(place ** power * top);
    const whose = this.shared ? "the same for all maps" : "each map has its own maximum";
    this.caption.textContent = this.linear() ? "share drawn from one patch"
      : `attention to one patch, square-root scale; ${whose}`;
  }

  /** Once the pointer rests: a sentence, and what each map is. */
  announce() {
    this.live.textContent = this.spoken();
    for (const cell of this.cells) {
      const map = this.mapOfCell(cell);
      cell.button.setAttribute("aria-label", `${this.nameOf(map)}, ${this.distanceText(map)}`);
      cell.button.title = `${this.nameOf(map)}: ${this.distanceText(map)}`;
    }
  }

  // ---- pointer and keys -------------------------------------------------------------------------------------------

  /** Choose the patch under the pointer. */
  point(event) {
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const inside = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    const row = inside((event.clientY - top) / height, this.rows);
    const col = inside((event.clientX - left) / width, this.cols);
    this.select({ query: this.meta.tokens.length + row * this.cols + col });
  }

  /** A click holds the patch, another on the same patch lets go; a finger only chooses. */
  press(event) {
    const before = this.state.query;
    this.point(event);
    if (event.pointerType !== "touch") this.hold(!(this.held && before === this.state.query));
  }

  hold(on) {
    this.held = on;
    this.drawPicture();
    this.write();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    const step = event.shiftKey ? -1 : 1;
    const arrow = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const { blocks, heads, tokens } = this.meta;
    const shows = SHOWS.map(([show]) => show);
    const actions = {
      b: () => this.cycle("block", blocks.length, step),
      h: () => this.cycle("head", heads, step),
      v: () => this.select({ show: shows[(shows.indexOf(this.state.show) + step + shows.length) % shows.length] }),
      c: () => this.select({ query: this.place() ? 0 : (this.state.query + step + tokens.length) % tokens.length }),
      m: () => this.overlayBox.click(),
      s: () => this.sharedBox.click(),
      escape: () => this.hold(false),
    };
    if (event.target === this.canvas) actions.enter = () => this.hold(!this.held);
    const among = this.maps.contains(event.target) && ["heads", "block"].includes(this.state.show);
    const action = !arrow ? actions[event.key.toLowerCase()]
      : among ? () => this.moveMap(...arrow) : () => this.moveQuery(...arrow);
    if (!action) return;
    action();
    event.preventDefault();
    event.stopPropagation();
  }

  /** Arrows among the maps: in the table of all heads across blocks and down heads, in a block along its heads. */
  moveMap(down, right) {
    if (this.state.show === "heads") this.select({ block: this.state.block + right, head: this.state.head + down });
    else this.select({ head: this.state.head + down + right });
    this.cells.find((cell) => cell.button.tabIndex === 0)?.button.focus();
  }
}

/** Unpack and show, in a page of its own or an iframe whose height follows; what goes wrong is said in its place. */
async function openPage() {
  const root = document.getElementById("viewer");
  const letters = atob(document.getElementById("packed").textContent);
  const packed = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const meta = JSON.parse(document.getElementById("meta").textContent);
  root.before(element("h1", { class: "vitlab-title" }, meta.title));
  try {
    const image = new Image();
    image.src = meta.picture;
    const [buffer] = await Promise.all([inflate(packed), image.decode()]);
    root.viewer = new AttentionViewer(root, meta, arraysOf(buffer, meta.arrays), image);
  } catch (error) {
    root.textContent = `The attention viewer cannot be shown: ${error.message}`;
  }
  const frame = window.frameElement;
  if (frame) {
    new ResizeObserver(() => { frame.style.height = `${Math.ceil(document.body.getBoundingClientRect().height)}px`; })
      .observe(document.body);
  }
}
