// Reads manifests of custom resources, a JSON array, from standard input; prints what their schemas refuse, a line each.
//
// The schemas come twice in the packages: as validators, which know patterns and ranges and let unknown fields pass, and as
// types, which know every field. Kubernetes refuses both kinds of mistake where validation is strict, so both are asked.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const MODULES = {
  ServiceMonitor: "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor",
  PrometheusRule: "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule",
  ScaledObject: "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject",
};

async function broken_values(manifest) {
  const Model = (await import(MODULES[manifest.kind]))[manifest.kind];
  try {
    new Model(manifest).validate();
    return [];
  } catch (error) {
    return [error.message];
  }
}

function unknown_fields(manifest) {
  const { kind } = manifest;
  // As if it lay here, so that the packages are found; it is never written.
  const name = fileURLToPath(new URL("manifest.mts", import.meta.url));
  const text = `import type { I${kind} } from "${MODULES[kind]}";\nexport const manifest: I${kind} = ${JSON.stringify(manifest)};\n`;
  const options = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    module: ts.ModuleKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    types: [],
  };
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.fileExists = (file) => file === name || fileExists(file);
  host.getSourceFile = (file, ...rest) =>
    file === name ? ts.createSourceFile(file, text, options.target) : getSourceFile(file, ...rest);
  const found = ts.getPreEmitDiagnostics(ts.createProgram([name], options, host));
  return found.map((one) => ts.flattenDiagnosticMessageText(one.messageText, " "));
}

for (const manifest of JSON.parse(readFileSync(0, "utf8"))) {
  for (const mistake of [...(await broken_values(manifest)), ...unknown_fields(manifest)]) {
    console.log(`${manifest.kind} ${manifest.metadata.name}: ${mistake}`);
  }
}
