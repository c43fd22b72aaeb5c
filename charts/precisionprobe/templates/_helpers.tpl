{{- define "precisionprobe.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "precisionprobe.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "precisionprobe.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "precisionprobe.selectorLabels" -}}
app.kubernetes.io/name: {{ include "precisionprobe.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "precisionprobe.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "precisionprobe.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "precisionprobe.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "precisionprobe.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "precisionprobe.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "precisionprobe.postgresSecret" -}}
{{- required "postgres.existingSecret is needed: the name of a Secret in this namespace with a Postgres connection string under the key postgres.secretKey" .Values.postgres.existingSecret }}
{{- end }}

{{- define "precisionprobe.secretName" -}}
{{ include "precisionprobe.fullname" . }}-tls
{{- end }}

{{- /* The operator's configuration: the user's, and what follows from the chart's own objects. */ -}}
{{- define "precisionprobe.config" -}}
{{- $name := include "precisionprobe.fullname" . }}
{{- $chart := dict
  "injection" (dict "image" (include "precisionprobe.image" .) "imagePullPolicy" .Values.image.pullPolicy)
  "postgres" (dict "conninfoFile" "/etc/precisionprobe/postgres/conninfo")
  "http" (dict "tlsPort" 9443 "plainPort" 8080)
  "ingest" (dict "endpoint" (printf "wss://%s.%s.svc:%v/v1/ingest" $name .Release.Namespace .Values.service.httpsPort))
  "lease" (dict "name" $name)
  "owner" (dict "deployment" $name)
  "webhook" (dict "configurationName" $name "serviceName" $name "secretName" (include "precisionprobe.secretName" .))
}}
{{- $user := deepCopy .Values.config }}
{{- toYaml (mergeOverwrite $chart $user) }}
{{- end }}

{{- define "precisionprobe.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}
