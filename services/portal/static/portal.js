"use strict";
// Every form and link works without this file: it copies, switches without a button, and shows answers as they come.

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  const label = button.firstChild;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    label.textContent = "Copied";
    setTimeout(() => { label.textContent = "Copy"; }, 2000);
  });
}

for (const select of document.querySelectorAll("select[data-submit]")) {
  select.form.querySelector("[data-without-script]").hidden = true;
  // Arrow keys on a closed list change it at each step.
  let byKey = false;
  select.addEventListener("keydown", (event) => {
    byKey = event.key !== "Enter";
    if (!byKey) select.form.requestSubmit();
  });
  select.addEventListener("pointerdown", () => { byKey = false; });
  select.addEventListener("change", () => { if (!byKey) select.form.requestSubmit(); });
}

// A second click orders nothing twice. A page that comes back out of the browser's memory works again.
for (const form of document.querySelectorAll("form[method=post]:not([data-stream])")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => { delete form.dataset.sent; });
}

// The page was the answer to a form: loading it again must not order again.
const forget = document.querySelector("[data-forget]");
if (forget) history.replaceState(null, "", forget.dataset.forget);

const asking = document.querySelector("form[data-stream]");
if (asking) {
  const answer = document.getElementById("answer");
  const stop = asking.querySelector("[data-stop]");
  const send = asking.querySelector("button.main");
  asking.addEventListener("submit", async (event) => {
    event.preventDefault();
    const ending = new AbortController();
    stop.onclick = () => ending.abort();
    stop.hidden = false;
    send.disabled = true;
    answer.textContent = "";
    answer.setAttribute("aria-busy", "true");
    try {
      const body = new URLSearchParams(new FormData(asking));
      const response = await fetch(asking.dataset.stream, { method: "POST", body, signal: ending.signal });
      if (!response.ok) throw new Error((await response.json()).error.message);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const event = JSON.parse(line);
          if (event.error) throw new Error(event.error);
          answer.append(event.text);
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") answer.append(`${answer.textContent ? "\n\n" : ""}${error.message}`);
    } finally {
      stop.hidden = true;
      send.disabled = false;
      answer.removeAttribute("aria-busy");
    }
  });
}
