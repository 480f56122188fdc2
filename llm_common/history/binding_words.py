"""Small word lists of what binds: words that forbid, allow, limit or ask, in thirty languages.

Each list has function words and a few stems, not sentences. `*` ends a stem or begins an ending,
and `_` joins the words of a phrase. A word of one language may mean something else in another, so
one word alone rarely makes a rule. `binding.py` has the weights.
"""

from collections.abc import Mapping
from typing import Final, Literal

Cue = Literal[
    "forbids",
    "bans",
    "negates",
    "excludes",
    "always",
    "only",
    "must",
    "may",
    "asks",
    "lasts",
    "limits",
    "fact",
    "agreed",
    "keeps",
    "corrects",
    "instead",
]

WORDS: Final[Mapping[Cue, str]] = {
    "forbids": """
        never nie niemals jamais nunca jamás nooit nigdy nikdy aldrig aldri koskaan soha никогда
        ніколи ποτέ asla sakın jangan đừng mustn't must_not may_not mai_e_poi_mai
    """,
    "bans": """
        forbidden prohibited disallowed off_limits not_allowed not_permitted no_account
        no_circumstances confidential untouched unchanged verboten untersagt keinesfalls
        unter_keinen_umständen vertraulich unverändert interdit* défense_de sous_aucun_prétexte
        confidentiel* prohibid* bajo_ningún confidencia* intact* vietat* proibit* riservat*
        invariat* proibid* verboden vertrouwelijk ongewijzigd zabrania* zabronion* nie_wolno
        nie_może poufn* żadn* zakázan* nesmí* förbjud* forbudt får_inte må_ikke kielletty tilos
        запрещ* нельзя никаких конфиденц* заборон* не_можна απαγορεύ* yasak* gizli dilarang
        không_được cấm *meyin *mayın *meyiniz *mayınız *mesin *masın
    """,
    # Only at the beginning of a clause, where a negation is followed by a command.
    "negates": """
        don't do_not dont nicht kein* nichts ne n'* pas_de pas_d'* aucun* nada non niente
        nessun* não nenhum* niet geen niets nie inte ikke inga älä älkää не ничего μην
    """,
    "excludes": """
        no not nothing without rien sin sem nic bez ingen* без
    """,
    "always": """
        always invariably whatever every_time immer stets grundsätzlich jedes_mal
        toujours systématiquement siempre sempre altijd steeds zawsze każdorazowo vždy
        alltid altid
        aina mindig всегда завжди πάντα her_zaman daima mutlaka hiçbir* selalu luôn
    """,
    "only": """
        only solely exclusively nothing_but nur ausschließlich lediglich uniquement seulement
        exclusivement solo sólo solamente únicamente soltanto esclusivamente apenas somente só
        alleen uitsluitend slechts tylko wyłącznie jedynie pouze jen endast bara kun vain csak
        только лишь исключительно тільки μόνο sadece yalnızca yalnız hanya chỉ
    """,
    "must": """
        must mandatory required requires obligatory needs_to approval approved consent
        permission
        sign-off signature signatures muss müssen musst hat_zu sind_zu ist_zu pflicht genehmig*
        freigabe freigegeben zustimmung unterschrift* doit doivent devez il_faut exige*
        obligatoire
        accord autoris* signature* veuillez debe* tiene_que tienen_que hay_que obligatori*
        permiso
        autoriza* aprob* firma* firme* deve* devono bisogna permess* approva* conferma
        precisa* permiss* aprova* assinatura* tem_de tem_que moet* verplicht goedkeur*
        toestemming
        handtekening* musi* należy trzeba zgod* zatwierdz* podpis* musí musíte måste skal skall
        pitää täytyy kell должн* должен обязан* надо нужно необходимо треб* согласи* подпис*
        разреш* повинн* потрібно πρέπει gerek* zorund* lazım onay* izin imza* *meli *malı
        harus wajib phải
    """,
    "may": """
        may allowed permitted allow darfst dürfen darf erlaubt peux pouvez peut puedes puede
        podéis
        puoi può potete pode podes podem mag mogen możesz może wolno můžete får kan saat можно
        можешь можете μπορείς boleh
    """,
    "asks": """
        please bitte s'il_te_plaît s'il_vous_plaît merci_de por_favor per_favore
        per_cortesia graag
        alstublieft alsjeblieft proszę prosím snälla tack_att пожалуйста прошу παρακαλώ lütfen
        tolong prefer* lieber préfère* prefiero preferisco prefiro liever wolę предпочит*
        tercih*
        make_sure be_sure remember_to i_want_you ask_me check_with
    """,
    "lasts": """
        from_now_on from_today as_of_today going_forward until_further_notice in_future
        henceforth
        ab_sofort ab_jetzt ab_heute von_nun_an künftig bis_auf_weiteres à_partir_de désormais
        dorénavant jusqu'à_nouvel a_partir_de de_ahora_en hasta_nuevo d'ora_in_poi da_ora_in
        da_adesso da_oggi fino_a_nuovo de_agora_em doravante vanaf_nu vanaf_vandaag voortaan
        od_teraz od_dziś odtąd od_dzisiaj odteď från_och_med hädanefter tästä_lähtien mostantól
        с_этого_момента с_сегодняшнего отныне впредь відтепер από_εδώ bundan_sonra bundan_böyle
        mulai_sekarang từ_nay
    """,
    "limits": """
        maximum minimum max at_most at_least no_more no_later limit limited cap budget deadline
        closes expires exceed* above over under below within before until
        höchstens mindestens maximal* grenze obergrenze frist stichtag budget über unter
        mehr_als
        spätestens läuft bis plafond limite* délai échéance dépass* supérieur* au_plus au_moins
        avant máxim* mínim* límite* plazo tope vence* supera* más_de antes massim* minim*
        scadenza
        superar* oltre entro più_di máximo prazo acima mais_de até hoogstens maximaal limiet
        uiterlijk boven meer_dan maksym* najwyżej limit* termin* powyżej przekr* budżet*
        najpóźniej
        maximáln* nejvýše högst senast максим* не_более предел лимит* срок* превыш* бюджет*
        больше свыше не_позднее en_fazla azami sınır* bütçe* son_tarih son_teslim aşan geçme*
    """,
    "fact": """
        allerg* intoleran* vegan* vegetarian* coeliac celiac diabet* pregnant wheelchair asthma*
        lactose laktos* gluten vertrage_kein* schwanger rollstuhl enceinte alérg* alergi*
        allergi* celíac* embarazad* intoller* incinta grávid* zwanger rolstoel uczulen* ciąż*
        аллерги* непереносим* беременн* вегетариан* alerji* hamile vejetaryen my_name_is
        ich_heiße je_m'appelle me_llamo se_llama mi_chiamo me_chamo mijn_naam nazywam меня_зовут
        legal_name
    """,
    "agreed": """
        agreed decided vereinbart beschlossen festgelegt abgemacht décidé convenu
        decidido decidimos acordado acordamos quedado hemos_decidido deciso concordat* stabilito
        combinado combinamos acertamos afgesproken besloten ustali* postanowi* uzgodni*
        договорил* решили условились karar* anlaştık dohodli bestämt
    """,
    "keeps": """
        avoid leave keep treat mask exclude stop skip as_it_is as_is vermeide* lass lassen
        évit* laisse* tel_quel telle_quelle evit* dej* tal_cual lascia* così_com'è deixe*
        como_está vermijd* laat unikaj* zostaw* избега* оставь* без_изменений как_есть kaçın*
        olduğu_gibi bırak* undvik* lämna
    """,
    # Only at the beginning of a sentence.
    "corrects": """
        no nein non nee nie нет hayır nej ne ei não ні correction korrektur corrección
        correzione
        correção correctie korekta поправка düzeltme actually scratch_that sorry
    """,
    "instead": """
        instead rather i_meant stattdessen sondern doch plutôt finalement au_lieu en_lugar
        en_vez
        mejor invece meglio piuttosto melhor em_vez in_plaats toch zamiast jednak лучше вместо
        а_не yerine aslında i_was_wrong not_anymore no_longer
    """,
}

SIGNS: Final[Mapping[Cue, str]] = {
    "forbids": """
        绝对不 绝不 不要 不能 请勿 切勿 禁止 严禁 不得 不准 不许 不可 勿 别打 别用 别发 别把
        别再 别在 別 保密
        禁止 ないで ないこと てはいけ てはなら ないように 避けて 控えて 出さな 秘密 厳禁
        마세요 마십시오 말아 말고 말 것 금지 안 됩니다 안 돼 하지 마 ห้าม อย่า मत नहीं_करें
        मना वर्जित
        لا_ ممنوع يمنع
    """,
    "always": """
        始终 总是 一律 务必 每次 永远 必ず 常に 絶対 いつも 항상 반드시 언제나 हमेशा دائما
        เสมอ
    """,
    "only": "只能 只用 只可 仅限 仅 只有 だけ のみ しか 만_ केवल फ़क़त فقط เท่านั้น",
    "must": """
        必须 需要 应该 应当 要求 签字 批准 同意 必要 なければ べき 署名 承認 許可 해야 필요
        승인 허가 서명
        चाहिए ज़रूर अनुमति يجب يلزم ต้อง
    """,
    "may": "可以 允许 てもよい てもいい ても構 해도_",
    "asks": """
        请 麻烦 希望 ください お願い ほしい にして しておいて 주세요 부탁 바랍니다 कृपया
        يرجى من_فضلك กรุณา
    """,
    "lasts": """
        从现在起 从今 今后 以后都 即日起 今後 これから 以降 앞으로 이제부터 अब_से من_الآن
        ต่อไปนี้
    """,
    "limits": """
        上限 下限 最多 最少 不超过 超过 截止 期限 预算 以内 之前 以后 以前 まで 以内 以下
        以上 超え 締め切 締切
        予算 이내 이하 까지 초과 마감 예산 तक अधिकतम ไม่เกิน
    """,
    "fact": """
        过敏 不耐受 怀孕 素食 アレルギー 妊娠 ベジタリアン 알레르기 임신 एलर्जी حساسية แพ้
        我叫 と申します
    """,
    "agreed": "商定 约定 说好 决定 定好 決め 決ま 合意 決定 합의 결정",
    "keeps": "避免 保持 原样 不变 避け そのまま 변경_없이 그대로",
    "corrects": "不对 不是 更正 いいえ いや 訂正 아니",
    "instead": "而是 改成 改为 改用 ではなく やはり 代わりに 대신",
}
"""The same for scripts without spaces between words, or with endings in place of words."""

_JOINERS = "please and also so then und bitte et y e en i и а ve och"
JOINERS: Final = frozenset(_JOINERS.split())
"""Words before the beginning of a clause: "please don't"."""
_ADVERSATIVES = "but aber mais pero ma mas maar ale но ama men"
ADVERSATIVES: Final = frozenset(_ADVERSATIVES.split())
"""Words that always begin a clause: "read it but don't change it"."""
