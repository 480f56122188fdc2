// The theme puts each table into a box that scrolls. A keyboard has to reach a box to scroll it.
document$.subscribe(() => {
  const boxes = new ResizeObserver((entries) => {
    for (const { target } of entries)
      target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) boxes.observe(box);
});
