// Shows the service's own description, with the token that the explorer keeps for this tab.
"use strict";

const KEPT = "shardc-token";

// This Swagger UI knows OpenAPI 3.0: the few words of 3.1 that FastAPI uses are said in those of 3.0.
function older(value) {
  if (Array.isArray(value)) return value.map(older);
  if (value === null || typeof value !== "object") return value;
  const made = Object.fromEntries(Object.entries(value).map(([name, held]) => [name, older(held)]));
  if (Array.isArray(made.anyOf) && made.anyOf.some((one) => one.type === "null")) {
    const others = made.anyOf.filter((one) => one.type !== "null");
    delete made.anyOf;
    Object.assign(made, others.length === 1 ? others[0] : { anyOf: others }, { nullable: true });
  }
  if ("const" in made) {
    made.enum = [made.const];
    delete made.const;
  }
  return made;
}

async function show() {
  const token = sessionStorage.getItem(KEPT);
  const answer = await fetch("v1/openapi.json", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  const said = await answer.json().catch(() => ({ what: `the service answered with status ${answer.status}` }));
  // Nothing is awaited from here on: whoever sees the form can type, the focus is there.
  document.getElementById("ask").hidden = answer.ok;
  if (!answer.ok) {
    document.getElementById("why").textContent = token ? said.what : "";
    document.getElementById("token").focus();
    return;
  }
  const ui = SwaggerUIBundle({
    spec: { ...older(said), openapi: "3.0.3" },
    domNode: document.getElementById("page"),
    deepLinking: true,
    validatorUrl: null,
    onComplete: () => token && ui.preauthorizeApiKey("token", token),
  });
}

document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEPT, document.getElementById("token").value.trim());
  show();
});
show();
