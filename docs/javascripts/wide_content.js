// Where the words of a long name meet: `LLM_COMMON_|TRACE_DIR`, `Session|Config`.
const BETWEEN_WORDS = /(?<=[_./,=])(?=\w)|(?<=[a-z])(?=[A-Z])/;

function letNameBreak(element) {
  for (const child of [...element.childNodes]) {
    if (child.nodeType !== Node.TEXT_NODE) continue;
    const words = child.data.split(BETWEEN_WORDS);
    const pieces = words.flatMap((word) => [document.createElement("wbr"), word]);
    child.replaceWith(...pieces.slice(1));
  }
}

document$.subscribe(() => {
  // The theme puts each table into a box that scrolls. A keyboard has to reach a box to scroll it.
  const boxes = new ResizeObserver((entries) => {
    for (const { target } of entries)
      target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) boxes.observe(box);

  const names = ".md-typeset h1, .doc-object-name, :not(pre) > code, :not(pre) > code a";
  for (const name of document.querySelectorAll(names)) letNameBreak(name);
});
