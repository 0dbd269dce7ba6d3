{{/* The name of the chart's objects, but for the release. */}}
{{- define "culvert.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of the chart's objects: the release's, which need not say the chart's twice. */}}
{{- define "culvert.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name of objects that have no namespace: releases in two namespaces may have one name. */}}
{{- define "culvert.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "culvert.fullname" .) }}
{{- end }}

{{/* The name of the Service that Prometheus finds pods by: no more than 63 characters. */}}
{{- define "culvert.metricsName" -}}
{{- printf "%s-metrics" (include "culvert.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{/* What the DaemonSet selects its pods by. It cannot change while there is one. */}}
{{- define "culvert.selectorLabels" -}}
app.kubernetes.io/name: {{ include "culvert.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "culvert.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "culvert.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: service-proxy
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Name, namespace and labels of an object that has the chart's name; `annotations` is added. */}}
{{- define "culvert.metadata" -}}
name: {{ include "culvert.fullname" . | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "culvert.labels" . | nindent 2 }}
{{- end }}

{{- define "culvert.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "culvert.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Which of the two images. */}}
{{- define "culvert.variant" -}}
{{- $calls := or .Values.takeOver (eq .Values.mode "iptables") }}
{{- .Values.image.variant | default (ternary "tools" "plain" (default false $calls)) }}
{{- end }}

{{/* Whether there may be something to do for the programs of iptables: rules to serve by, in mode auto too, or
chains to remove. Empty if not. */}}
{{- define "culvert.callsIptables" -}}
{{- $named := or .Values.image.tag .Values.image.digest }}
{{- $has := ternary (hasSuffix "-tools" (.Values.image.tag | default "")) (eq (include "culvert.variant" .) "tools") (not (empty $named)) }}
{{- $asked := and (not (include "culvert.cleans" .)) (or .Values.takeOver (eq .Values.mode "iptables")) }}
{{- if or $has $asked }}true{{ end }}
{{- end }}

{{/* Whether the mode is one of a packet backend alone. Empty if not. */}}
{{- define "culvert.rulesAlone" -}}
{{- if has .Values.mode (list "nftables" "iptables") }}true{{ end }}
{{- end }}

{{- define "culvert.image" -}}
{{- $image := .Values.image }}
{{- $name := $image.repository }}
{{- with $image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end }}
{{- $suffix := ternary "-tools" "" (eq (include "culvert.variant" .) "tools") }}
{{- $tag := $image.tag | default (printf "%s%s" .Chart.AppVersion $suffix) }}
{{- if $image.digest }}
{{- /* The digest decides; a tag beside it is for readers. */}}
{{- $name }}{{ with $image.tag }}:{{ . }}{{ end }}@{{ $image.digest }}
{{- else }}
{{- $name }}:{{ $tag }}
{{- end }}
{{- end }}

{{/* Whether the mode has a layer of eBPF. Empty if not. */}}
{{- define "culvert.hasEbpf" -}}
{{- if has .Values.mode (list "auto" "ebpf") }}true{{ end }}
{{- end }}

{{- define "culvert.cleans" -}}
{{- if eq .Values.mode "cleanup" }}true{{ end }}
{{- end }}

{{/* Whether an init container sees to it that the host has a BPF file system. */}}
{{- define "culvert.mountsBpffs" -}}
{{- if kindIs "bool" .Values.bpffs.mount }}
{{- if .Values.bpffs.mount }}{{ include "culvert.hasEbpf" . }}{{ end }}
{{- else }}
{{- include "culvert.hasEbpf" . }}
{{- end }}
{{- end }}

{{/* IP[:PORT], [IP]:PORT: what is before the port, and the port. */}}
{{- define "culvert.portOf" -}}
{{- regexFind "[0-9]+$" . }}
{{- end }}
{{- define "culvert.hostOf" -}}
{{- . | trimSuffix (printf ":%s" (include "culvert.portOf" .)) | trimPrefix "[" | trimSuffix "]" }}
{{- end }}
{{- define "culvert.isLoopback" -}}
{{- $host := include "culvert.hostOf" . }}
{{- if or (hasPrefix "127." $host) (eq $host "::1") }}true{{ end }}
{{- end }}

{{/* Where Prometheus finds the metrics: the name of the port, if it can. */}}
{{- define "culvert.metricsAreReachable" -}}
{{- with .Values.metricsBindAddress }}
{{- if not (include "culvert.isLoopback" .) }}true{{ end }}
{{- end }}
{{- end }}

{{/* `job` of the metrics in rules, and as the monitors set it. */}}
{{- define "culvert.job" -}}
{{- .Values.prometheusRule.job | default (include "culvert.fullname" .) }}
{{- end }}
