// A browser opens six connections to one host: a hidden tab gives its stream back, and looks again once it is seen.
htmx.createEventSource = function (url) {
  var source = new EventSource(url);
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) {
      source.close();
    } else if (source.readyState === EventSource.CLOSED) {
      location.reload();
    }
  });
  return source;
};

// What is shown may be old: say so, or show why the page is closed.
document.addEventListener("htmx:sseError", function () {
  document.getElementById("away").hidden = false;
});
document.addEventListener("htmx:sseOpen", function () {
  document.getElementById("away").hidden = true;
});
document.addEventListener("htmx:responseError", function () {
  location.reload();
});

// Nothing is taken away under the keyboard: neither the place of who moves by it, nor what is being typed.
document.addEventListener("htmx:beforeRequest", function (event) {
  if (document.querySelector("#main :focus-visible, #views :focus-visible")) {
    event.preventDefault();
  }
});
