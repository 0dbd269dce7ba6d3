{{/* Addresses as the agent reads them: what is none is refused here, not in a pod on every node. */}}

{{/* 4 or 6: the family of an IP address. Empty if it is none. */}}
{{- define "culvert.family" -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" }}
{{- $four := printf "%s(\\.%s){3}" $octet $octet }}
{{- if regexMatch (printf "^%s$" $four) . }}4
{{- else }}
{{- /* The last two groups may be written as IPv4. */}}
{{- $groups := regexReplaceAll (printf ":%s$" $four) . ":0:0" }}
{{- $some := "([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)" }}
{{- $count := len (compact (splitList ":" $groups)) }}
{{- if or (and (eq $count 8) (regexMatch (printf "^%s$" $some) $groups)) (and (lt $count 8) (regexMatch (printf "^%s?::%s?$" $some $some) $groups)) }}6{{ end }}
{{- end }}
{{- end }}

{{/* The same of a CIDR. One of IPv4 in the words of IPv6 is none to the agent. */}}
{{- define "culvert.familyOfCidr" -}}
{{- $parts := splitList "/" . }}
{{- $mapped := regexMatch "(?i)^::ffff:[^:]+(:[^:]+)?$" (first $parts) }}
{{- if and (eq (len $parts) 2) (regexMatch "^[0-9]{1,3}$" (last $parts)) (not $mapped) }}
{{- $family := include "culvert.family" (first $parts) }}
{{- if and $family (le (atoi (last $parts)) (ternary 32 128 (eq $family "4"))) }}{{ $family }}{{ end }}
{{- end }}
{{- end }}

{{/* Whether it is IP:PORT or [IPv6]:PORT. */}}
{{- define "culvert.isBindAddress" -}}
{{- $port := regexFind ":[0-9]{1,5}$" . | trimPrefix ":" }}
{{- $host := . | trimSuffix (printf ":%s" $port) }}
{{- $inner := $host | trimPrefix "[" | trimSuffix "]" }}
{{- $family := ternary "6" "4" (eq $host (printf "[%s]" $inner)) }}
{{- if and $port (le 1 (atoi $port)) (le (atoi $port) 65535) (eq (include "culvert.family" $inner) $family) }}true{{ end }}
{{- end }}

{{- define "culvert.refuseAddresses" -}}
{{- $v := .Values }}
{{- with $v.clusterCIDR }}
{{- $families := list }}
{{- range splitList "," . }}{{ $families = append $families (include "culvert.familyOfCidr" (trim .)) }}{{ end }}
{{- if or (has "" $families) (ne (len $families) (len (uniq $families))) }}
{{- fail (printf "clusterCIDR: %q: must be one CIDR such as 10.244.0.0/16, or one of each family separated by a comma: 10.244.0.0/16,fd00:10:244::/56" .) }}
{{- end }}
{{- end }}
{{- range $v.nodePortAddresses }}
{{- if eq . "primary" }}
{{- if gt (len $v.nodePortAddresses) 1 }}
{{- fail "nodePortAddresses: primary must stand alone, without CIDRs" }}
{{- end }}
{{- else if not (include "culvert.familyOfCidr" .) }}
{{- fail (printf "nodePortAddresses: %q: must be the one word primary, or CIDRs such as 192.0.2.0/24" .) }}
{{- end }}
{{- end }}
{{- range $field := list "healthzBindAddress" "metricsBindAddress" }}
{{- with get $v $field }}
{{- if not (include "culvert.isBindAddress" .) }}
{{- fail (printf "%s: %q: must be IP:PORT or [IPv6]:PORT with a port from 1 to 65535, such as 0.0.0.0:10256 or [::]:10256, or empty, which turns the port off" $field .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
