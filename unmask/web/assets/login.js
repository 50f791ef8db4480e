// The page that asks for the password.
document.getElementById("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const line = document.getElementById("line");
  const password = document.getElementById("password");
  const response = await fetch("/login", {
    method: "POST", body: JSON.stringify({ password: password.value }),
    headers: { "Content-Type": "application/json", "X-Unmask": "1" },
  });
  if (response.ok) location.assign(`/${location.hash}`); // where the reader wanted to go
  else line.textContent = (await response.json()).error;
  password.focus();
});
