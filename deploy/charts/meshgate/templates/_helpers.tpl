{{/*
The values that count, as YAML: of the platform, over them those given, over them those given below `cni:`. Each template begins
with it. (Plain merging would take `false` for "not given", hence mustMergeOverwrite, and no defaults for what platforms set.)
*/}}
{{- define "meshgate.values" -}}
{{- $given := mustMergeOverwrite (omit (deepCopy .Values) "cni") (deepCopy (.Values.cni | default dict)) -}}
{{- range list "cniBinDir" "cniConfDir" "cniNetnsDir" -}}
{{- if not (get $given .) -}}
{{- $_ := unset $given . -}}
{{- end -}}
{{- end -}}
{{- $platform := coalesce $given.platform $given.global.platform "default" -}}
{{- $of := .Files.Get (printf "platforms/%s.yaml" $platform) | fromYaml -}}
{{- if not $of -}}
{{- fail (printf "platform %q is not known: see platforms/ in this chart, or leave it out and set cniBinDir and cniConfDir" $platform) -}}
{{- end -}}
{{- $values := mustMergeOverwrite (.Files.Get "platforms/default.yaml" | fromYaml) $of $given -}}
{{- if not $values.ambient.enabled -}}
{{- fail "ambient.enabled=false: this agent serves ambient only; pods with sidecars need istio-cni (or Istio's init containers)" -}}
{{- end -}}
{{- if and $values.istioOwnedCNIConfig (not $values.chained) -}}
{{- fail "istioOwnedCNIConfig needs chained: a plugin that is called by a file of its own holds no other's" -}}
{{- end -}}
{{- $_ := set $values "platform" $platform -}}
{{- toYaml $values -}}
{{- end -}}

{{/* Whether namespaced, and whether cluster-wide objects are to be made: not empty if so. */}}
{{- define "meshgate.namespaced" -}}
{{- if has .global.resourceScope (list "all" "namespace") }}true{{ end -}}
{{- end -}}
{{- define "meshgate.clusterwide" -}}
{{- if has .global.resourceScope (list "all" "cluster") }}true{{ end -}}
{{- end -}}

{{/* Labels of every object. Called with the context and the values. */}}
{{- define "meshgate.labels" -}}
{{- $root := index . 0 }}{{ $values := index . 1 -}}
app.kubernetes.io/name: istio-cni
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
app.kubernetes.io/part-of: meshgate
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | quote }}
istio.io/rev: {{ $values.revision | default "default" | quote }}
{{- with $values.ownerName }}
install.operator.istio.io/owning-resource: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The image's full name. Called with the context and the values. */}}
{{- define "meshgate.image" -}}
{{- $root := index . 0 }}{{ $values := index . 1 -}}
{{- if contains "/" $values.image -}}
{{ $values.image }}
{{- else -}}
{{ coalesce $values.hub $values.global.hub }}/{{ $values.image }}:{{ coalesce $values.tag $values.global.tag $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/*
The level of our log, from Istio's way of saying it: one level, or scope:level by commas, of which the agent's scope counts and
the one for all.
*/}}
{{- define "meshgate.level" -}}
{{- $level := "info" -}}
{{- range coalesce .logging.level .global.logging.level "info" | splitList "," -}}
{{- $scope := regexFind "^[^:]+:" . | trimSuffix ":" -}}
{{- if has $scope (list "" "all" "default" "cni" "cni-agent") -}}
{{- $level = regexReplaceAll "^.*:" . "" -}}
{{- end -}}
{{- end -}}
{{- get (dict "none" "off" "fatal" "error") $level | default $level -}}
{{- end -}}

{{/* Requests and limits without what is null, by which values take a default away. */}}
{{- define "meshgate.resources" -}}
{{- $kept := dict -}}
{{- range $kind, $amounts := coalesce .resources .global.defaultResources dict -}}
{{- range $name, $amount := $amounts -}}
{{- if not (kindIs "invalid" $amount) -}}
{{- $_ := set $kept $kind (set (get $kept $kind | default dict) $name $amount) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{/* A value as text: Helm reads each number as a float, which prints 10000000 as 1e+07. */}}
{{- define "meshgate.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* A port: from `env`, or this default. */}}
{{- define "meshgate.port" -}}
{{- $values := index . 0 -}}
{{- get (default dict $values.env) (index . 1) | default (index . 2) | int -}}
{{- end -}}
