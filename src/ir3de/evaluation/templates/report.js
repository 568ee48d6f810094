// Tables whose columns are sorted when their headers are pressed. Without scripts they are read as they are.
for (const table of document.querySelectorAll("table.sortable")) {
  const [heads, body] = [[...table.tHead.rows[0].cells], table.tBodies[0]];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numbers = "number" in head.dataset;
      const falling = head.ariaSort ? head.ariaSort === "ascending" : numbers;
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = numbers ? (a, b) => value(a) - value(b) : (a, b) => value(a).localeCompare(value(b));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = falling ? "descending" : "ascending";
      body.append(...[...body.rows].sort((a, b) => (falling ? compare(b, a) : compare(a, b))));
    });
  });
}
