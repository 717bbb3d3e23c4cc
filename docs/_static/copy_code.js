// A button on every block of code that copies it; without a shell's prompts.
"use strict";
if (navigator.clipboard) {
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-code";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.innerText.replace(/^\$ /gm, "").trimEnd() + "\n");
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.parentElement.append(button);
  }
}
