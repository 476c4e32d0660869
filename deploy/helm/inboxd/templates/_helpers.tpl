{{- define "inboxd.name" -}}
{{- if contains "inboxd" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-inboxd" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "inboxd.selector" -}}
app.kubernetes.io/name: inboxd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "inboxd.labels" -}}
{{ include "inboxd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "inboxd.config" -}}
{{ .Values.config | trim }}

[http]
listen = "0.0.0.0:{{ .Values.http.port }}"
hosts = {{ concat (list (include "inboxd.name" .) (printf "%s.%s" (include "inboxd.name" .) .Release.Namespace) (printf "%s.%s.svc" (include "inboxd.name" .) .Release.Namespace)) (.Values.http.hosts | default list) | toJson }}
read_tokens = [{ name = "read", variable = "READ_TOKEN" }]
admin_tokens = [{ name = "admin", variable = "ADMIN_TOKEN" }]
open_metrics = {{ .Values.http.openMetrics | default false }}
{{- end }}

{{- define "inboxd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What the service and the init job have in common. */}}
{{- define "inboxd.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  - name: INBOXD_CONFIG
    value: /etc/inboxd/inboxd.toml
  - name: DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: {{ .Values.database.existingSecret }}
        key: {{ .Values.database.key }}
  - name: READ_TOKEN
    valueFrom:
      secretKeyRef:
        name: {{ .Values.tokens.existingSecret }}
        key: {{ .Values.tokens.readKey }}
  - name: ADMIN_TOKEN
    valueFrom:
      secretKeyRef:
        name: {{ .Values.tokens.existingSecret }}
        key: {{ .Values.tokens.adminKey }}
volumeMounts:
  - name: config
    mountPath: /etc/inboxd
    readOnly: true
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
