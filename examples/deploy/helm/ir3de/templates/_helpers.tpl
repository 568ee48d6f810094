{{- define "ir3de.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "ir3de.selector" -}}
app.kubernetes.io/name: ir3de
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ir3de.labels" -}}
{{ include "ir3de.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
