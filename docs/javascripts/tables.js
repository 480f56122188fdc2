document$.subscribe(() => {
  // The theme puts each table into a box that scrolls. A keyboard has to reach a box to scroll it.
  const boxes = new ResizeObserver((entries) => {
    for (const { target } of entries)
      target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
  });
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) boxes.observe(box);

  // A long name in a narrow column breaks between its words.
  for (const code of document.querySelectorAll("td code:not(:has(*))"))
    code.innerHTML = code.innerHTML.replace(/(?<=[_./,=])(?=\w)|(?<=[a-z])(?=[A-Z])/g, "<wbr>");
});
