// Before the first paint: the theme that was chosen by hand.
try {
  const theme = localStorage.getItem("otel-gym-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch { /* storage is refused: the system's theme stays */ }
