{{- define "headrace.labels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "headrace.redisSecret" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis" .Release.Name) }}
{{- end }}

{{- define "headrace.keySecret" -}}
{{- .Values.gateway.keys.existingSecret | default (printf "%s-admin" .Release.Name) }}
{{- end }}

{{- define "headrace.encryptionSecret" -}}
{{- .Values.encryption.existingSecret | default (printf "%s-encryption" .Release.Name) }}
{{- end }}

{{- define "headrace.modelsClaim" -}}
{{- .Values.models.existingClaim | default (printf "%s-models" .Release.Name) }}
{{- end }}

{{- /* What every pod has. Service links off: Kubernetes would set variables named HEADRACE_…, which services refuse. */ -}}
{{- define "headrace.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headrace.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "headrace.env" -}}
- {name: HEADRACE_METRICS_HOST, value: "0.0.0.0"}
- name: HEADRACE_SERVICE_INSTANCE
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- with .root.Values.telemetry.otlpEndpoint }}
- {name: HEADRACE_OTLP_ENDPOINT, value: {{ . | quote }}}
- {name: HEADRACE_TRACE_SAMPLE_RATIO, value: {{ $.root.Values.telemetry.sampleRatio | quote }}}
{{- end }}
{{- range $name, $value := .settings }}
- {name: HEADRACE_{{ $name | upper | replace "-" "_" }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- define "headrace.redisEnv" -}}
- name: HEADRACE_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "headrace.redisSecret" . }}, key: url}}
{{- if .Values.encryption.enabled }}
- {name: HEADRACE_ENCRYPTION_KEYS, value: /etc/headrace/encryption-keys}
{{- end }}
{{- end }}

{{- /* Of whoever reads and writes Redis. */ -}}
{{- define "headrace.redisMounts" -}}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.encryption.enabled }}
  - {name: encryption, mountPath: /etc/headrace, readOnly: true}
  {{- end }}
{{- end }}

{{- define "headrace.redisVolumes" -}}
volumes:
  - {name: tmp, emptyDir: {}}
  {{- if .Values.encryption.enabled }}
  - name: encryption
    secret: {secretName: {{ include "headrace.encryptionSecret" . }}, defaultMode: 0440}
  {{- end }}
{{- end }}

{{- /* A long start is no death; a live process is not restarted because it is not ready. */ -}}
{{- define "headrace.aliveProbes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}
