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
{{- $repository := required "image.repository is needed: where you have pushed the image that e2e/image builds, e.g. --set image.repository=registry.example/team/precisionprobe" .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "precisionprobe.postgresSecret" -}}
{{- required "postgres.existingSecret is needed: the name of a Secret in this namespace with a Postgres connection string under the key postgres.secretKey" .Values.postgres.existingSecret }}
{{- end }}

{{- define "precisionprobe.secretName" -}}
{{ include "precisionprobe.fullname" . }}-tls
{{- end }}

{{- /* Limits of durations, in seconds, which the schema cannot compare. The operator refuses what is beyond them, too,
       but when it starts. */ -}}
{{- define "precisionprobe.durationLimits" -}}
api.queryTimeout: [0.1, 15]
attribution.solveInterval: [1, 3600]
http.drain: [0, 20]
postgres.connectTimeout: [1, 300]
prometheus.collectionInterval: [0, 600]
prometheus.maxLag: [0, 600]
prometheus.maxWait: [1, 3600]
prometheus.queryTimeout: [1, 300]
prometheus.scrapeInterval: [0, 600]
retention.activity: [0, 3153600000]
retention.interval: [1, 86400]
retention.results: [0, 3153600000]
retention.samples: [0, 3153600000]
{{- end }}

{{- define "precisionprobe.checkDurations" -}}
{{- $units := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 1e-3 "us" 1e-6 "ns" 1e-9 }}
{{- range $path, $limits := include "precisionprobe.durationLimits" . | fromYaml }}
{{- $parts := splitList "." $path }}
{{- with dig (first $parts) (last $parts) "" $.Values.config }}
{{- $seconds := 0.0 }}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 }}
{{- $number := regexFind "^[0-9.]+" . }}
{{- $seconds = addf $seconds (mulf (float64 $number) (get $units (trimPrefix $number .))) }}
{{- end }}
{{- if or (lt $seconds (first $limits)) (gt $seconds (last $limits)) }}
{{- fail (printf "config.%s: %s is not from %.0fs to %.0fs" $path . (first $limits) (last $limits)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Absent after `helm upgrade --reuse-values` from a chart without it. */ -}}
{{- define "precisionprobe.clientCA" -}}
{{- dig "webhook" "clientCA" dict .Values.AsMap | default dict | toYaml }}
{{- end }}

{{- /* Of several replicas the one that was told of a session is to be asked about the pod behind it: the API server's
     calls keep to one. Agents must not: they look for the one that leads. */ -}}
{{- define "precisionprobe.reviewService" -}}
{{- include "precisionprobe.fullname" . | trunc 56 | trimSuffix "-" }}-review
{{- end }}

{{- define "precisionprobe.calledService" -}}
{{- include (gt (int .Values.replicaCount) 1 | ternary "precisionprobe.reviewService" "precisionprobe.fullname") . }}
{{- end }}

{{- /* The operator's configuration: the user's, and what follows from the chart's own objects. */ -}}
{{- define "precisionprobe.config" -}}
{{- include "precisionprobe.checkDurations" . }}
{{- $name := include "precisionprobe.fullname" . }}
{{- $host := printf "%s.%s.svc" $name .Release.Namespace }}
{{- if gt (len $host) 110 }}
{{- fail (printf "agents cannot connect to a host of more than 110 characters: %s: shorten fullnameOverride or the namespace" $host) }}
{{- end }}
{{- $chart := dict
  "injection" (dict "image" (include "precisionprobe.image" .) "imagePullPolicy" .Values.image.pullPolicy)
  "postgres" (dict "conninfoFile" "/etc/precisionprobe/postgres/conninfo")
  "http" (dict "tlsPort" 9443 "plainPort" 8080)
  "ingest" (dict "endpoint" (printf "wss://%s:%v/v1/ingest" $host .Values.service.httpsPort))
  "lease" (dict "name" $name)
  "owner" (dict "deployment" $name)
  "webhook" (dict "configurationName" $name "serviceName" $name "reviewServiceName" (include "precisionprobe.reviewService" .) "secretName" (include "precisionprobe.secretName" .))
}}
{{- $ca := include "precisionprobe.clientCA" . | fromYaml }}
{{- if or $ca.secret $ca.configMap }}
{{- $_ := set $chart.webhook "clientCaFile" (printf "/etc/precisionprobe/client-ca/%s" ($ca.key | default "ca.crt")) }}
{{- end }}
{{- /* Absent after `helm upgrade --reuse-values` from a chart without it: sessions are kept then. */ -}}
{{- with dig "sessions" "ttlSecondsAfterFinished" "" .Values.AsMap }}
{{- $_ := set $chart "sessions" (dict "ttlSecondsAfterFinished" (int64 .)) }}
{{- end }}
{{- $user := deepCopy .Values.config }}
{{- toYaml (mergeOverwrite $chart $user) }}
{{- end }}

{{- /* The configuration is the pods' own: one that is started anew has that of its own release, not of a later one, whose
       options it may not know. */ -}}
{{- define "precisionprobe.configFile" -}}
items:
  - path: config.yaml
    fieldRef: {fieldPath: "metadata.annotations['precisionprobe.io/config']"}
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

{{- /* CEL: whether a pod asks for a resource of a vendor of GPUs, for a device by a claim, or for us. */ -}}
{{- define "precisionprobe.gpuPods" -}}
{{- $gpus := dig "injection" "gpuResources" (list "nvidia.com/gpu" "amd.com/gpu") .Values.config }}
{{- $vendors := list }}
{{- range $gpus }}
{{- $vendors = append $vendors (regexReplaceAll "/.*$" . "/") }}
{{- end }}
{{- $asks := list }}
{{- range $vendor := $vendors | uniq }}
{{- $asks = append $asks (printf "r.startsWith('%s')" $vendor) }}
{{- end }}
{{- $tests := list }}
{{- range list "containers" "initContainers" }}
{{- $list := printf "has(object.spec.%s) && object.spec.%s" . . }}
{{- range $part := list "limits" "requests" }}
{{- $tests = append $tests (printf "(%s.exists(c, has(c.resources) && has(c.resources.%s) && c.resources.%s.exists(r, %s)))" $list $part $part (join " || " $asks | default "false")) }}
{{- end }}
{{- end }}
{{- range list "labels" "annotations" }}
{{- $tests = append $tests (printf "(has(object.metadata.%s) && object.metadata.%s.exists(k, k.startsWith('precisionprobe.io/')))" . .) }}
{{- end }}
{{- append $tests "has(object.spec.resourceClaims)" | join " || " }}
{{- end }}
