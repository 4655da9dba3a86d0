// Returns the problems of an HtmlPage as it is shown, as texts: each names the rule, the element and the numbers.
(() => {
  const kLeastContrast = 4.5, kLeastContrastOfShapes = 3, kLeastFont = 9, kSlack = 1;  // font and slack in pixels
  const problems = [];
  const width = document.documentElement.clientWidth;
  const named = (element) => `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`;
  const scrolls = (element) => element.closest(".scroll") !== null;

  // What is wider than the page.
  if (document.documentElement.scrollWidth > width) {
    problems.push(`overflow: the page is ${document.documentElement.scrollWidth} wide, the screen ${width}`);
  }
  for (const element of document.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && (box.right > width + kSlack || box.left < -kSlack) &&
        (!scrolls(element) || element.matches(".scroll"))) {
      problems.push(`overflow: ${named(element)} reaches from ${box.left} to ${box.right} of ${width}`);
    }
  }

  // Colours are [red, green, blue, opacity]; a canvas reads every notation.
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const read = (colour, opacity = 1) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255 * opacity];
  };
  const over = (top, bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const fill_of = (shape) => {
    const style = getComputedStyle(shape);
    return style.fill === "none" ? [0, 0, 0, 0] : read(style.fill, style.opacity * style.fillOpacity);
  };
  const is_around = (box, x, y) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;

  // The colour behind an element: of the elements that contain it and, in a figure, of the shapes drawn before it.
  const backdrop = (element) => {
    const ancestors = [];
    for (let one = element; one; one = one.parentElement) ancestors.unshift(one);
    let colour = read(matchMedia("(prefers-color-scheme: dark)").matches ? "black" : "white");
    for (const one of ancestors) colour = over(read(getComputedStyle(one).backgroundColor), colour);
    const figure = element.closest("svg");
    if (!figure) return colour;
    const box = element.getBoundingClientRect();
    for (const shape of figure.querySelectorAll("rect")) {
      const is_before = shape.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING;
      if (is_before && is_around(shape.getBoundingClientRect(), (box.left + box.right) / 2, (box.top + box.bottom) / 2)) {
        colour = over(fill_of(shape), colour);
      }
    }
    return colour;
  };

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("title, script, style")) continue;
    const behind = backdrop(element), style = getComputedStyle(element);
    const ink = over(element.closest("svg") ? fill_of(element) : read(style.color), behind);
    const ratio = contrast(ink, behind);
    if (ratio < kLeastContrast) problems.push(`contrast: ${named(element)} has ${ratio.toFixed(2)}`);
    const scale = element.closest("svg") ? element.getScreenCTM().a || Math.abs(element.getScreenCTM().b) : 1;
    const size = parseFloat(style.fontSize) * scale;
    if (size < kLeastFont) problems.push(`font: ${named(element)} has ${size.toFixed(1)} pixels`);
  }

  // Figures: something is drawn, nothing is outside, and no text is on another.
  for (const figure of document.querySelectorAll("svg")) {
    const title = figure.getAttribute("aria-label") || figure.querySelector("text")?.textContent || "a figure";
    const frame = figure.getBoundingClientRect();
    const shapes = [...figure.querySelectorAll("polyline, path, circle, rect, line, text")];
    const marks = shapes.filter((shape) => shape.matches("polyline, path, circle, rect"));
    const drawn = marks.filter((shape) => {
      const box = shape.getBoundingClientRect();
      return box.width + box.height > 0 && box.width * box.height < 0.98 * frame.width * frame.height;
    });
    if (drawn.length === 0) problems.push(`empty: "${title}" shows nothing`);
    for (const shape of shapes) {
      const box = shape.getBoundingClientRect();
      if (box.left < frame.left - kSlack || box.right > frame.right + kSlack || box.top < frame.top - kSlack ||
          box.bottom > frame.bottom + kSlack) {
        problems.push(`cut: ${named(shape)} leaves "${title}"`);
      }
    }
    for (const shape of drawn.filter((one) => one.matches("polyline, circle"))) {
      const style = getComputedStyle(shape), paint = style.stroke === "none" ? style.fill : style.stroke;
      const ratio = contrast(read(paint), backdrop(figure.parentElement));
      if (ratio < kLeastContrastOfShapes) problems.push(`contrast: a line of "${title}" has ${ratio.toFixed(2)}`);
    }
    const texts = shapes.filter((shape) => shape.matches("text"));
    const boxes = texts.map((text) => text.getBoundingClientRect());
    for (let i = 0; i < texts.length; ++i) {
      for (let j = 0; j < i; ++j) {
        const across = Math.min(boxes[i].right, boxes[j].right) - Math.max(boxes[i].left, boxes[j].left);
        const down = Math.min(boxes[i].bottom, boxes[j].bottom) - Math.max(boxes[i].top, boxes[j].top);
        if (across > kSlack && down > kSlack) {
          problems.push(`overlap: ${named(texts[j])} and ${named(texts[i])} in "${title}"`);
        }
      }
    }
  }
  return problems;
})()
