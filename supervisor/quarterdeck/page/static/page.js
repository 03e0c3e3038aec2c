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
